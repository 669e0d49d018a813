#!/bin/bash
# A slow link (bench/wire.py: two network namespaces, a relay with a delay, a capped rate) between two ranks of Open MPI: it
# has its delay and its cap, the link is measured, training over it gives the bits of local ranks whatever the buckets; and
# what weft bench says of steps with and without reductions.
source "$(dirname "$0")/common.sh"
weft=${WEFT:-$PWD/build/weft} mlp=$PWD/tests/refs/dynamic_plain/model.pt2 tensors=$PWD/tests/e2e/tensors.py
wire=$PWD/bench/wire.py
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1
python3 "$tensors" data.safetensors x=F32:48x8:rand y=I64:48:mod4

# Steps without reductions: replicas drift, and only there.
run "$weft" bench "$mlp" --data data.safetensors --threads 1 --batch-size 4 --nproc 2 --steps 10
check "weft bench: steps of two ranks" test $code -eq 0
check "weft bench: their time" grep -qE '^step: [0-9.]+ ms \(median of 6, from [0-9.]+ to [0-9.]+\)$' "$work/out"
run "$weft" bench "$mlp" --data data.safetensors --threads 1 --batch-size 4 --nproc 2 --steps 8 --no-reduce
check "without reductions: both are told" grep -qE '^step: [0-9.]+ ms with reductions, [0-9.]+ ms without; they add -?[0-9.]+ ms \(median of 2 pairs,' "$work/out"
run "$weft" bench "$mlp" --data data.safetensors --threads 1 --batch-size 4 --nproc 2 --steps 8 --no-reduce --check-replicas 4
check "without reductions: replicas drift" says "differs between rank 0 and rank 1 after step 4"
run "$weft" bench "$mlp" --data data.safetensors --threads 1 --batch-size 4 --nproc 2 --steps 8 --check-replicas 4
check "with reductions: they do not" test $code -eq 0
WEFT_PROFILE=1 WEFT_LOG=info run "$weft" bench "$mlp" --data data.safetensors --threads 1 --batch-size 4 --nproc 2 --steps 8 --bucket-mb 0
check "a profile says when gradients are ready, as bench/overlap.py reads it" python3 - "$work/err" "$(dirname "$wire")" <<'P'
import sys
sys.path.insert(0, sys.argv[2])
import overlap
names = {name for _, _, name in overlap.READY.findall(open(sys.argv[1]).read())}
print(names)
sys.exit(len(names) < 4)
P
check "the first step, which touches memory for the first time, does not count in it" grep -qE 'profile: [0-9]+ calls, [0-9.]+ ms a run \(7 of 8\)' "$work/err"
WEFT_PROFILE=1 WEFT_LOG=info run "$weft" bench "$mlp" --data data.safetensors --threads 1 --batch-size 4 --nproc 2 --steps 8 --no-reduce
check "with steps that do not reduce the profile is theirs" grep -qE 'profile: [0-9]+ calls, [0-9.]+ ms a run \(3 of 8\)' "$work/err"
run "$weft" train "$mlp" --data data.safetensors --no-reduce
check "weft train keeps its reductions" test $code -eq 2
run "$weft" bench "$mlp" --data data.safetensors --steps 2
check "a bench of two steps is refused" test $code -eq 2

why=$(python3 -c "import sys; sys.path.insert(0, '$(dirname "$wire")'); import wire; print(wire.possible() or '')")
if [ -n "$why" ] || ! command -v mpirun.openmpi >/dev/null || [ ! -f "$WEFT_PLUGIN_DIR/libweft-mpi-openmpi.so" ] || ! ip netns add weft-probe-$$ 2>/dev/null; then
    echo "# no slow link here: ${why:-no Open MPI, or no network namespaces}"
    end
fi
ip netns del weft-probe-$$
run python3 "$wire" 80 4 "$weft" bench --machine
check "two ranks over the link" test $code -eq 0
link() { sed -nE 's/^link \(mpi, 2 ranks\): ([0-9.]+) us, .* ([0-9.]+) GB\/s of all_reduce$/\1 \2/p' "$work/out"; }
# 4 ms one way; 80 Mbit/s are 10 MB/s.
check "the link has its delay" sh -c "echo $(link) | awk '{exit !(\$1 >= 4000)}'"
check "the link has its cap" sh -c "echo $(link) | awk '{exit !(\$2 <= 0.0105)}'"
check "what was measured is kept" grep -q next_s cache/weft/machine.json
trained() { # OUT FLAGS...
    local out=$work/$1
    shift
    run python3 "$wire" 80 4 "$weft" train "$mlp" --data "$work/data.safetensors" --threads 1 --batch-size 4 --steps 8 --out "$out" "$@"
    [ $code -eq 0 ]
}
run "$weft" train "$mlp" --data data.safetensors --threads 1 --batch-size 4 --steps 8 --nproc 2 --out local
check "local ranks" test $code -eq 0
check "over the link" trained planned
check "over the link, each alone" trained alone --bucket-mb 0 --no-overlap
for d in planned alone; do check "$d: the bits of local ranks" cmp local/final.safetensors $d/final.safetensors; done
orphans() { ip netns list | sed -nE 's/^weft-([0-9]+)-.*/\1/p' | while read -r p; do [ -d "/proc/$p" ] || echo "$p"; done; }
check "no namespace is left" test -z "$(orphans)"
check "nothing is left" nothing_left
end
