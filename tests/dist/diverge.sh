#!/bin/bash
# Fifty times one rank of two, three or four starts with something else: an option, the model, the data, the weights. Every
# time all ranks end soon, with an error that says what differs, before anything was trained. SEED=N repeats a run.
source "$(dirname "$0")/common.sh"
weft=${WEFT:-$PWD/build/weft} refs=$PWD/tests/refs tensors=$PWD/tests/e2e/tensors.py
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1
seed=${SEED:-$((10#$(date +%N) % 32768))}
echo "# seed $seed"
RANDOM=$seed
python3 "$tensors" good.safetensors x=F32:48x8:rand y=I64:48:mod4
python3 "$tensors" fewer.safetensors x=F32:36x8:rand y=I64:36:mod4
python3 "$tensors" narrow.safetensors x=F32:48x8:rand y=I32:48:mod4
cp "$refs/dynamic_plain/model.pt2" model.pt2
# The same archive with another number in its graph: a node's position in the source, which changes no result.
python3 - <<'P'
import zipfile
with zipfile.ZipFile("model.pt2") as a, zipfile.ZipFile("other.pt2", "w") as b:
    changed = 0
    for i in a.infolist():
        data = a.read(i)
        if i.filename.endswith("models/model.json"):
            at = data.index(b"line ") + 5
            data, changed = data[:at] + (b"8" if data[at:at + 1] != b"8" else b"9") + data[at + 1:], changed + 1
        b.writestr(i, data)
assert changed == 1
P
"$weft" train model.pt2 --data good.safetensors --threads 1 --steps 1 --lr 0.1 --out trained >/dev/null 2>&1

# What the odd rank does, what the others do, and what the error must say; a line each, fields by tabs.
kinds=(
    "--lr 0.5	--lr 0.25	--lr"
    "--weight-decay 0.5		--weight-decay 0.5"
    "--seed 7	--seed 8	--seed"
    "--optimizer sgd		--optimizer"
    "--eps 1e-6		--eps"
    "--betas 0.8,0.9		--betas"
    "--clip-norm 1		--clip-norm"
    "--schedule cosine		--schedule"
    "--warmup-steps 3		--warmup-steps"
    "--accumulate 2		--accumulate"
    "--batch-size 4	--batch-size 6	--batch-size"
    "--epochs 2	--epochs 3	--epochs"
    "--steps 3	--steps 4	--steps"
    "--no-shuffle		--shuffle"
    "--grad-reduce sum		--grad-reduce"
    "--bucket-mb 0		--bucket-mb"
    "--no-overlap		--overlap"
    "--loss-norm tokens		--loss-norm"
    "--last-batch pad		--last-batch"
    "--check-replicas 5		--check-replicas"
    "--no-init-sync		--init-sync"
    "--param-group *.bias:weight-decay=0		--param-group"
    "--deterministic elastic		--deterministic"
    "DATA fewer		training samples"
    "DATA narrow		input y as i32 in the file"
    "MODEL other		a model file of"
    "--no-init-sync --weights trained/final.safetensors	--no-init-sync	differ"
)
as_rank() { # RANK WORLD FLAGS...
    local r=$1 n=$2 model=model.pt2 data=good.safetensors
    shift 2
    case "$1 $2" in
    "DATA "*) data=$2.safetensors; shift 2 ;;
    "MODEL "*) model=$2.pt2; shift 2 ;;
    esac
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=$n LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 30 "$weft" train \
        "$model" --data "$data" --threads 1 --out never "$@" >"out.$r" 2>"err.$r" </dev/null
}
first=$((RANDOM % ${#kinds[@]}))
for i in $(seq 50); do
    IFS=$'\t' read -r theirs ours want <<<"$(sed 's/\t\t/\t\x01\t/' <<<"${kinds[(first + i) % ${#kinds[@]}]}")"
    [ "$ours" = $'\x01' ] && ours=
    n=$((2 + RANDOM % 3)) port=$((20000 + RANDOM % 20000))
    odd=$((RANDOM % n)) begun=$(date +%s%N) pids=()
    for r in $(seq 0 $((n - 1))); do
        set -f # a flag may hold a star
        if [ "$r" -eq $odd ]; then as_rank "$r" $n $theirs & else as_rank "$r" $n $ours & fi
        set +f
        pids+=($!)
    done
    bad=
    for r in $(seq 0 $((n - 1))); do
        wait "${pids[r]}"
        code=$?
        [ $code -eq 1 ] || bad="$bad rank $r: exit code $code;"
    done
    took=$((($(date +%s%N) - begun) / 1000000))
    cat err.? >err
    rm -f out.? err.?
    [ "$(grep -c "^error" err)" -eq 1 ] || bad="$bad no error, or several;"
    grep -qF -- "$want" err || bad="$bad not said;"
    grep -qE "rank $odd\b" err || [ $odd -eq 0 ] || bad="$bad rank $odd not named;"
    [ ! -e never/final.safetensors ] || bad="$bad trained;"
    [ $took -le 5000 ] || bad="$bad $took ms;"
    [ -z "$bad" ] || echo "#$bad"
    check "$n ranks, rank $odd with $theirs, others with ${ours:-nothing}" test -z "$bad"
done
check "nothing is left" nothing_left
end
