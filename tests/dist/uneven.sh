#!/bin/bash
# Epochs whose last step is not full, as a user trains: with fewer rows (short) or filled up with rows that count for nothing
# (pad), on ranks of which some have less data and some none, every step has the loss of one rank with all its rows, and
# evaluation counts every row once. One mean over all labels that count (--loss-norm=tokens), where they are ragged.
source "$(dirname "$0")/common.sh"
weft=${WEFT:-$PWD/build/weft} mlp=$PWD/tests/refs/dynamic_plain/model.pt2 norm=$PWD/tests/refs/dynamic_norm/model.pt2
gpt=$PWD/tests/refs/gpt_tiny_adamw/model.pt2 tensors=$PWD/tests/e2e/tensors.py
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1
python3 "$tensors" rows.safetensors x=F32:44x8:rand y=I64:44:mod4   # steps of 12 rows leave 8
python3 "$tensors" eval.safetensors x=F32:29x8:rand y=I64:29:mod4
python3 "$tensors" words.safetensors idx=I64:21x16:mod59 targets=I64:21x16:mod53
python3 - <<'P' # the same labels, but many that count for nothing, differently often
import struct
from tensors import read, write
words = read("words.safetensors")
dtype, shape, labels = words["targets"]
labels = bytearray(labels)
for row in range(21):
    for t in range(16):
        if t % (1 + row % 5) and row % 4:
            struct.pack_into("<q", labels, 8 * (16 * row + t), -100)
words["targets"] = dtype, shape, bytes(labels)
write("ragged.safetensors", words)
P
train() { # OUT DATA MODEL FLAGS...
    local out=$1 data=$2 model=$3
    shift 3
    run "$weft" train "$model" --data "$data.safetensors" --threads 1 --optimizer sgd --lr 0.1 --epochs 3 --out "$out" "$@"
    [ $code -eq 0 ]
}
steps() { [ "$(grep -c '"loss"' "$1/metrics.jsonl")" -eq "$2" ]; }
# Largest relative difference of losses and gradient norms of two runs: rounding, which grows a little from step to step.
close() { python3 - "$1" "$2" "$3" <<'P'
import json, sys
a, b = ([json.loads(l) for l in open(d + "/metrics.jsonl")] for d in sys.argv[1:3])
pairs = [(x[k], y[k]) for x, y in zip(a, b) for k in ("loss", "grad_norm", "eval_loss", "eval_accuracy") if k in x]
worst = max(abs(x - y) / abs(x) if x != y else 0 for x, y in pairs)
print("worst", worst)
sys.exit(len(a) != len(b) or len(pairs) < 10 or not worst <= float(sys.argv[3]))
P
}
differ() { ! close "$@"; }

check "one rank, short" train one rows "$mlp" --batch-size 12 --last-batch short --eval-data eval.safetensors
check "four steps an epoch" steps one 12
check "one rank, dropped" train dropped rows "$mlp" --batch-size 12
check "three steps an epoch" steps dropped 9
for last in short pad; do
    [ $last = pad ] && check "one rank, pad" train pad1 rows "$mlp" --batch-size 12 --last-batch pad --eval-data eval.safetensors
    [ $last = pad ] && check "one rank, pad: the same steps" close one pad1 1e-5
    for n in 2 3 4; do
        flags="--batch-size $((12 / n)) --last-batch $last --nproc $n --eval-data eval.safetensors"
        check "$n ranks, $last" train $last$n rows "$mlp" $flags
        check "$n ranks, $last: the steps of one" close one $last$n 1e-5
    done
    check "two ranks, two micro-batches, $last" train ${last}k rows "$mlp" --batch-size 3 --last-batch $last --nproc 2 \
        --accumulate 2 --check-replicas 1 --eval-data eval.safetensors
    check "two ranks, two micro-batches, $last: the steps of one" close one ${last}k 1e-5
    check "more micro-batches than rows, $last" train ${last}m rows "$mlp" --batch-size 2 --last-batch $last --nproc 2 --accumulate 3 \
        --eval-data eval.safetensors
    check "more micro-batches than rows, $last: the steps of one" close one ${last}m 1e-5
    for mpi in openmpi mpich; do
        if ! command -v mpirun.$mpi >/dev/null || [ ! -f "$WEFT_PLUGIN_DIR/libweft-mpi-$mpi.so" ]; then continue; fi
        for n in 2 3 4; do
            run mpirun.$mpi -n $n "$weft" train "$mlp" --data rows.safetensors --threads 1 --optimizer sgd --lr 0.1 --epochs 3 \
                --batch-size $((12 / n)) --last-batch $last --eval-data eval.safetensors --out $mpi$last$n
            check "$mpi, $n ranks, $last" test $code -eq 0
            check "$mpi, $n ranks, $last: the bytes of local" cmp $last$n/final.safetensors $mpi$last$n/final.safetensors
        done
    done
done
check "less data than ranks" train few eval "$mlp" --batch-size 10 --last-batch pad --nproc 4
check "one step an epoch" steps few 3

# A static export: the batch is 4, whoever computes it. Ragged labels.
check "pad, tokens: one rank" train w1 ragged "$gpt" --last-batch pad --loss-norm tokens --accumulate 4 --eval-data ragged.safetensors
check "pad, tokens: two ranks" train w2 ragged "$gpt" --last-batch pad --loss-norm tokens --accumulate 2 --nproc 2 \
    --eval-data ragged.safetensors
check "pad, tokens: four ranks" train w4 ragged "$gpt" --last-batch pad --loss-norm tokens --nproc 4 --eval-data ragged.safetensors
check "two steps an epoch" steps w1 6
check "two ranks: the steps of one" close w1 w2 1e-5
check "four ranks: the steps of one" close w1 w4 1e-5
check "what the mean is over" grep -q '"loss_count": [0-9]*, ' w1/metrics.jsonl
check "the mean of means" train w5 ragged "$gpt" --last-batch pad --nproc 4 --eval-data ragged.safetensors
check "is another" differ w1 w5 1e-3
for n in 1 2 4; do
    check "elastic, pad, tokens: $n ranks" train el$n ragged "$gpt" --last-batch pad --loss-norm tokens --accumulate $((4 / n)) \
        --nproc $n --deterministic elastic
    check "elastic, pad, tokens: $n ranks, the same bytes" cmp el1/final.safetensors el$n/final.safetensors
done

run "$weft" train "$gpt" --data words.safetensors --last-batch short --epochs 1
check "short needs a dynamic batch" test $code -eq 2
check "and says how to get one" says "dynamic_shapes="
check "of what size the last one is" says "has 1 samples, and the export allows 4 only"
python3 "$tensors" pictures.safetensors x=F32:22x3x8x8:rand y=I64:22:mod4
check "batch norm, padded" train bn pictures "$norm" --batch-size 4 --last-batch pad
check "the warning names the node" says "statistics are those of all rows, also of padding: at %"
run "$weft" train "$norm" --data pictures.safetensors --batch-size 4 --last-batch short --buffers sync --nproc 2
check "synchronised statistics are refused" says "option buffers: sync"
run "$weft" train "$mlp" --data rows.safetensors --loss-norm tokens --grad-reduce sum --nproc 2
check "sums of gradients are refused" says "loss-norm tokens divides"
check "nothing is left" nothing_left
end
