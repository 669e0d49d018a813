#!/bin/bash
# Micro-batches by the memory there is: the table of a plan, rows fixed by option, rows that each rank chooses when a step
# begins, and what is refused. Whatever is chosen, the step is that of the whole batch.
source "$(dirname "$0")/common.sh"
weft=${WEFT:-$PWD/build/weft} mlp=$PWD/tests/refs/dynamic_plain/model.pt2 gpt=$PWD/tests/refs/gpt_tiny_adamw/model.pt2
tensors=$PWD/tests/e2e/tensors.py
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1
python3 "$tensors" rows.safetensors x=F32:472x8:rand y=I64:472:mod4 # steps of 64 rows leave 24
python3 "$tensors" words.safetensors idx=I64:64x16:mod59 targets=I64:64x16:mod53
train() { # OUT FLAGS...
    local out=$1
    shift
    run "$weft" train "$mlp" --data rows.safetensors --threads 1 --optimizer sgd --lr 0.1 --epochs 2 --out "$out" "$@"
    [ $code -eq 0 ]
}
# Largest relative difference of losses and gradient norms of two runs: rounding, which grows a little from step to step.
close() { python3 - "$1" "$2" "$3" <<'P'
import json, sys
a, b = ([json.loads(l) for l in open(d + "/metrics.jsonl")] for d in sys.argv[1:3])
pairs = [(x[k], y[k]) for x, y in zip(a, b) for k in ("loss", "grad_norm")]
worst = max(abs(x - y) / abs(x) for x, y in pairs)
print("worst", worst)
sys.exit(len(a) != len(b) or len(pairs) < 10 or not worst <= float(sys.argv[3]))
P
}
rows() { grep -o '"micro_batch": \[[0-9, ]*\]' "$1/metrics.jsonl" | sort | uniq -c | sed 's/^ *//; s/"micro_batch": //'; }

# The table.
run "$weft" plan "$mlp" --batch-size 64 --micro-batch auto --threads 1
check "plan: the columns" grep -qE "Device +Memory, MB +Max micro-batch +Accum steps +Latency overhead" "$work/out"
check "plan: a row for each divisor; memory falls, the prediction rises" python3 - "$work/out" <<'P'
import sys
rows = [l.split() for l in open(sys.argv[1]) if l.startswith("  cpu ")]
memory, micro, steps, over = ([float(r[i]) for r in rows] for i in (1, 2, 3, 4))
assert micro == [64, 32, 16, 8, 4, 2], micro
assert [m * s for m, s in zip(micro, steps)] == [64] * 6, steps
assert memory == sorted(memory, reverse=True) and memory[0] > memory[-1], memory
assert over == sorted(over) and over[0] == 0 and over[-1] > 0, over
P
one_row() { [ "$(grep -c '^  cpu ' "$work/out")" -eq 1 ] && grep -qE "^  cpu +[0-9.]+ +$1 +$2 +0\.0 %" "$work/out"; }
run "$weft" plan "$gpt" --threads 1
check "plan: a static batch has one row" one_row 4 1
run "$weft" plan "$mlp" --batch-size 16 --accumulate 4 --threads 1
check "plan: --accumulate leaves one row" one_row 16 4
run "$weft" plan "$mlp" --batch-size 16 --micro-batch auto --deterministic elastic --threads 1
check "plan: elastic leaves one row" one_row 16 1

# Rows fixed by option.
check "the whole batch" train whole --batch-size 64
for n in 2 16 64; do
    check "--micro-batch $n" train fixed$n --batch-size 64 --micro-batch $n
    check "--micro-batch $n: the steps of the whole batch" close whole fixed$n 1e-5
done
check "the row is recorded" test "$(rows fixed16)" = "14 [16]"
for n in 2 4; do
    check "$n ranks, --micro-batch 8" train ranks$n --batch-size $((64 / n)) --micro-batch 8 --nproc $n
    check "$n ranks: the steps of the whole batch" close whole ranks$n 1e-5
done

# Rows chosen by each rank, from memory that is said to be there.
need() { awk -v n="$1" '/^  cpu / && $3 == n { print int($2 * 1048576 * 1.2) }' "$work/plan"; }
run "$weft" plan "$mlp" --batch-size 32 --micro-batch auto --threads 1
cp "$work/out" "$work/plan"
chosen() { # OUT MEMORY FLAGS...
    local out=$1 memory=$2
    shift 2
    WEFT_MEMORY=$memory train "$out" --micro-batch auto "$@"
}
check "two ranks, enough for one" chosen auto2 1K,1G --batch-size 32 --nproc 2
check "two ranks: each has its row" test "$(rows auto2)" = "14 [2, 32]"
check "two ranks: the steps of the whole batch" close whole auto2 1e-5
check "two ranks, with a checkpoint" chosen ck2 1K,1G --batch-size 32 --nproc 2 --checkpoint-every 5
check "two ranks: it records the rows" grep -qF '"micro_batch": [2, 32]' ck2/checkpoints/step-10/MANIFEST
rm -r ck2/checkpoints/step-14
check "two ranks: goes on with the same memory" chosen ck2 1K,1G --batch-size 32 --nproc 2 --resume ck2
check "two ranks: to the same bytes" cmp auto2/final.safetensors ck2/final.safetensors
check "it says that memory is short" says "--micro-batch auto: 0.0 MB of memory are available"
check "three ranks" chosen auto3 1G,1K,1G --batch-size 16 --nproc 3 --last-batch short
check "three ranks: each has its row" test "$(rows auto3)" = "20 [16, 2, 16]"
check "three ranks of 16 are one of 48" train whole48 --batch-size 48 --last-batch short
check "three ranks: the steps of the whole batch" close whole48 auto3 1e-5
check "four ranks" chosen auto4 1K,1G,1G,1K --batch-size 16 --nproc 4
check "four ranks: each has its row" test "$(rows auto4)" = "14 [2, 16, 16, 2]"
check "four ranks: the steps of the whole batch" close whole auto4 1e-5
check "memory comes and goes" chosen steps 1G/1K/1G --batch-size 64
check "the row follows it" test "$(grep -o '"micro_batch": \[[0-9]*\]' steps/metrics.jsonl | head -4 | tr -dc '0-9\n' | tr '\n' ' ')" = "64 2 64 64 "
check "the steps of the whole batch" close whole steps 1e-5
check "nothing is compiled for it" sh -c "! grep -q 'compiled now' '$work/err'"
check "between two rows" chosen between "$(need 8)" --batch-size 32
fits() { python3 - "$1" "$2" <<'P'
import json, sys
n = json.loads(open(sys.argv[1] + "/metrics.jsonl").readline())["micro_batch"][0]
sys.exit(not int(sys.argv[2]) <= n <= 32)
P
}
check "takes what fits" fits between 8
check "what is really there: the whole batch" train real --batch-size 64 --micro-batch auto
check "what is really there: recorded" test "$(rows real)" = "14 [64]"
for mpi in openmpi mpich; do
    if ! command -v mpirun.$mpi >/dev/null || [ ! -f "$WEFT_PLUGIN_DIR/libweft-mpi-$mpi.so" ]; then continue; fi
    WEFT_MEMORY=1K,1G run mpirun.$mpi -n 2 "$weft" train "$mlp" --data rows.safetensors --threads 1 --optimizer sgd --lr 0.1 --epochs 2 \
        --batch-size 32 --micro-batch auto --out $mpi
    check "$mpi: runs" test $code -eq 0
    check "$mpi: the bytes of local" cmp auto2/final.safetensors $mpi/final.safetensors
done

# Evaluation takes each rank's rows in parts of its own size, and every row once.
python3 "$tensors" eval.safetensors x=F32:79x8:rand y=I64:79:mod4
check "evaluation" train eval1 --batch-size 64 --eval-data eval.safetensors
check "evaluation, two ranks with their rows" chosen eval2 1K,1G --batch-size 32 --nproc 2 --eval-data eval.safetensors
close_eval() { python3 - "$1" "$2" <<'P'
import json, sys
a, b = ([json.loads(l)["eval_loss"] for l in open(d + "/metrics.jsonl") if "eval_loss" in l] for d in sys.argv[1:3])
sys.exit(not a or len(a) != len(b) or max(abs(x - y) / x for x, y in zip(a, b)) > 1e-5)
P
}
numbers() { grep -o "\"eval_$1\": [0-9.]*" "$2/metrics.jsonl"; }
check "evaluation: the same accuracy" test "$(numbers accuracy eval1)" = "$(numbers accuracy eval2)"
check "evaluation: the same loss" close_eval eval1 eval2

# With a last step that is not full.
for last in short pad; do
    check "one rank, $last" train $last --batch-size 64 --last-batch $last
    check "two ranks with their rows, $last" chosen ${last}2 1K,1G --batch-size 32 --nproc 2 --last-batch $last
    check "two ranks, $last: the steps of one" close $last ${last}2 1e-5
done

# Elastic: the table has one row, and it is the one that has these bits.
elastic() { run "$weft" train "$gpt" --data words.safetensors --threads 1 --epochs 1 --deterministic elastic --out "$@"; [ $code -eq 0 ]; }
check "elastic" elastic e1 --accumulate 4
check "elastic, auto" elastic e2 --accumulate 2 --nproc 2 --micro-batch auto
check "elastic, auto: the same bytes" cmp e1/final.safetensors e2/final.safetensors

# --micro-batch N names the leaves: the same bits on 1, 2 and 4 ranks, those of --accumulate; other leaves differ by rounding.
leaves() { train "$@" --deterministic elastic; }
check "elastic, --micro-batch 16" leaves l1 --batch-size 64 --micro-batch 16
check "elastic, --micro-batch 16, two ranks" leaves l2 --batch-size 32 --micro-batch 16 --nproc 2
check "elastic, --micro-batch 16, four ranks" leaves l4 --batch-size 16 --micro-batch 16 --nproc 4
check "elastic, --accumulate 4" leaves la --batch-size 16 --accumulate 4
for n in 2 4 a; do check "elastic, $n: the same bytes" cmp l1/final.safetensors l$n/final.safetensors; done
check "elastic: the row is recorded" test "$(rows l2)" = "14 [16, 16]"
check "elastic, --micro-batch 8" leaves l8 --batch-size 64 --micro-batch 8
check "elastic: rows agree" close l1 l8 1e-5
check "elastic, auto, two ranks of different memory" chosen lm 1K,1G --batch-size 16 --accumulate 2 --nproc 2 --deterministic elastic
check "elastic, auto: the same bytes" cmp l1/final.safetensors lm/final.safetensors

# A compiled step, and what is refused.
run "$weft" compile "$mlp" --micro-batch auto --optimizer sgd -o any.weft
check "compiled" test $code -eq 0
mlp_was=$mlp mlp=any.weft
check "a compiled step takes any row" train compiled --batch-size 64 --micro-batch 8
check "a compiled step: the same bytes" cmp compiled/final.safetensors <(mlp=$mlp_was train again --batch-size 64 --micro-batch 8 && cat again/final.safetensors)
mlp=$mlp_was
run "$weft" compile "$mlp" --optimizer sgd -o one.weft
run "$weft" train one.weft --data rows.safetensors --batch-size 64 --micro-batch 8 --steps 1
check "a step of one micro-batch: refused" says "compiled for a fixed number of micro-batches"
refused() { # MESSAGE FLAGS...
    local message=$1
    shift
    run "$weft" train "$mlp" --data rows.safetensors --batch-size 64 --steps 1 "$@"
    check "refused: $*" test $code -eq 2
    check "refused: $*, named" says "$message"
}
refused "cannot be taken in micro-batches of that size" --micro-batch 7
refused "cannot be taken in micro-batches of that size" --micro-batch 1
refused "neither a number of rows nor auto" --micro-batch some
refused "neither a number of rows nor auto" --micro-batch 0
refused "both say how many micro-batches" --micro-batch 8 --accumulate 2
refused "cannot be taken in micro-batches of that size" --micro-batch 24 --deterministic elastic
refused "no power of two" --batch-size 24 --micro-batch 8 --deterministic elastic
WEFT_MEMORY=much refused "WEFT_MEMORY=much" --micro-batch auto
run "$weft" train "$gpt" --data words.safetensors --micro-batch 2 --steps 1
check "a static export: refused" says "dynamic_shapes="
run "$weft" train "$gpt" --data words.safetensors --batch-size 4 --micro-batch 2 --deterministic elastic --steps 1
check "a static export, elastic: refused" says "dynamic_shapes="
run "$weft" train "$mlp" --data rows.safetensors --micro-batch 8 --deterministic elastic --steps 1
check "elastic without the rows of a step: refused" says "is part of the step"
run "$weft" train "$mlp" --data rows.safetensors --batch-size 64 --steps 1 --micro-batch 8 --loss cross_entropy --reduction sum --target y
check "a sum: refused" test $code -ne 0
check "nothing is left" nothing_left
end
