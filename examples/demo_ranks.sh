#!/bin/bash
# Trains the network of examples/fashion.py on two ranks, starts two ranks that do not agree, and kills a rank in the
# middle of a run. `make demo-ranks` runs it; it takes less than a minute.
set -uo pipefail
cd "$(dirname "$0")/.."
weft=${WEFT:-build/weft}
out=${1:-build/demo-ranks}
data=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}
if [ ! -f "$data/train-images-idx3-ubyte.gz" ]; then
    echo "demo-ranks: no Fashion-MNIST in $data; the Debian package dataset-fashion-mnist has it." >&2
    exit 1
fi
rm -rf "$out"
mkdir -p "$out"
train=("$weft" train examples/fashion.pt2 --loss cross_entropy --optimizer adamw --lr 3e-3
    --data "x=$data/train-images-idx3-ubyte.gz" --data "y=$data/train-labels-idx1-ubyte.gz")
failed=0

echo "== two ranks, 60 steps"
"${train[@]}" --nproc 2 --steps 60 --log-every 20 --out "$out/two" || exit 1

echo
echo "== two ranks that were started with different learning rates, as torchrun would start them"
port=$((20000 + $$ % 20000))
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
RANK=1 LOCAL_RANK=1 "${train[@]}" --lr 0.1 --steps 5 --out "$out/differ" 2>"$out/rank1" &
RANK=0 LOCAL_RANK=0 "${train[@]}" --lr 0.2 --steps 5 --out "$out/differ" 2>"$out/rank0"
wait $!
unset WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
cat "$out/rank0" "$out/rank1" | grep -A1 '^error' || failed=1

echo
echo "== a rank is killed in the middle of a run"
"${train[@]}" --nproc 2 --steps 1000000 --out "$out/killed" 2>"$out/killed.log" &
launcher=$!
for _ in $(seq 400); do
    [ -s "$out/killed/metrics.jsonl" ] && break
    sleep 0.05
done
"$weft" hang "$out/killed"
victim=$(pgrep -P $launcher | tail -1)
echo "kill -KILL $victim"
begun=$(date +%s%N)
kill -KILL "$victim"
wait $launcher
echo "exit code $? after $((($(date +%s%N) - begun) / 1000000)) ms; what the launcher said:"
grep -A1 '^error' "$out/killed.log" || failed=1
echo
echo "== the same bytes on one rank and on two (--deterministic elastic)"
for n in 1 2; do
    "${train[@]}" --deterministic elastic --nproc $n --accumulate $((2 / n)) --steps 20 --log-every 100 --out "$out/elastic$n" 2>/dev/null || failed=1
    sha256sum "$out/elastic$n/final.safetensors" | sed "s|$out/||; s|\$|   ($n rank(s), $((2 / n)) micro-batch(es) each)|"
done
cmp "$out/elastic1/final.safetensors" "$out/elastic2/final.safetensors" || failed=1
echo
echo "next:     $weft train --help        --nproc, --buffers, --bucket-mb, --check-replicas; mpirun -n 2 $weft train ..."
exit $failed
