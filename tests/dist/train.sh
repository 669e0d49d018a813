#!/bin/bash
# Data-parallel training as a user starts it: ranks equal the big batch; transports, buckets, overlap and threads change no
# bit; ranks that were started differently refuse to begin; a killed rank ends all; Ctrl-C saves.
source "$(dirname "$0")/common.sh"
weft=${WEFT:-$PWD/build/weft} mlp=$PWD/tests/refs/dynamic_plain/model.pt2 resnet=$PWD/tests/refs/ddp4_resnet
tensors=$PWD/tests/e2e/tensors.py
PWD_AT_START=$PWD
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1
python3 "$tensors" good.safetensors x=F32:48x8:rand y=I64:48:mod4
begun() { run "$weft" train "$mlp" --data good.safetensors --threads 1 --optimizer adamw "$@"; [ $code -eq 0 ]; }
# Largest relative difference of the losses of two runs, below a limit: sums over 4 samples and over 2 x 2 differ by
# rounding only, about 1e-7 a step.
close() { python3 - "$1" "$2" "$3" <<'P'
import json, sys
a, b = ([json.loads(l)["loss"] for l in open(d + "/metrics.jsonl") if '"loss"' in l] for d in sys.argv[1:3])
worst = max(abs(x - y) / abs(x) for x, y in zip(a, b))
print("worst", worst)
sys.exit(len(a) != len(b) or not a or worst > float(sys.argv[3]))
P
}

check "one rank, batches of 12" begun --batch-size 12 --epochs 3 --out one
check "two ranks of 6" begun --batch-size 6 --epochs 3 --nproc 2 --out two
check "three ranks of 4" begun --batch-size 4 --epochs 3 --nproc 3 --out three
check "four ranks of 3" begun --batch-size 3 --epochs 3 --nproc 4 --out four
for n in two three four; do check "$n: the losses of the big batch" close one $n 1e-5; done
check "rank 0 alone writes, but for the logs" test "$(ls two | sed 's/^events\..*/events/' | tr '\n' ' ')" = \
    "best.safetensors events final.safetensors metrics.jsonl rank-0.log rank-1.log "
check "a line of metrics a step" test "$(wc -l <two/metrics.jsonl)" -eq 12
bn=$PWD_AT_START/tests/refs/resnet_tiny_bn_sgd
XDG_CACHE_HOME=$work/cold run "$weft" train "$bn/model.pt2" --data "$bn/inputs.safetensors" --optimizer sgd --accumulate 2 --steps 1 --nproc 2
check "what compiling warns of is said once, whoever compiles" test "$(grep -c '^warning' "$work/err")" -eq 1

check "again" begun --batch-size 4 --epochs 3 --nproc 3 --out again
check "without buckets" begun --batch-size 4 --epochs 3 --nproc 3 --bucket-mb 0 --out alone
check "one bucket" begun --batch-size 4 --epochs 3 --nproc 3 --bucket-mb 100 --out together
check "without overlap" begun --batch-size 4 --epochs 3 --nproc 3 --bucket-mb 0 --no-overlap --out serial
check "with two threads" begun --batch-size 4 --epochs 3 --nproc 3 --threads 2 --out threads
for d in again alone together serial threads; do check "$d: the same bytes" cmp three/final.safetensors $d/final.safetensors; done
for mpi in openmpi mpich; do
    if ! command -v mpirun.$mpi >/dev/null || [ ! -f "$WEFT_PLUGIN_DIR/libweft-mpi-$mpi.so" ]; then
        echo "# no $mpi here"
        continue
    fi
    run mpirun.$mpi -n 3 "$weft" train "$mlp" --data good.safetensors --threads 1 --optimizer adamw --batch-size 4 --epochs 3 --out $mpi
    check "$mpi: runs" test $code -eq 0
    check "$mpi: the same bytes" cmp three/final.safetensors $mpi/final.safetensors
done
check "sums instead of means" begun --batch-size 6 --epochs 1 --nproc 2 --grad-reduce sum --out sum
check "other bytes" sh -c '! cmp -s two/final.safetensors sum/final.safetensors'
check "replicas are compared" begun --batch-size 6 --epochs 3 --nproc 2 --check-replicas 2 --out replicas

# What was measured of the machine chooses buckets, and no bit.
run "$weft" bench --machine
check "the machine is measured" grep -q "GFLOP/s on one core" "$work/out"
check "and kept" test -s cache/weft/machine.json
check "three ranks, buckets by measurement" begun --batch-size 4 --epochs 3 --nproc 3 --out measured
check "measured: the same bytes" cmp three/final.safetensors measured/final.safetensors
run "$weft" plan "$resnet/model.pt2" --nproc 4 --threads 1
check "the plan shows when buckets start and arrive" grep -qE "communication: .* ms in [0-9]+ buckets" "$work/out"
echo '{"flops_per_s": "many"' >cache/weft/machine.json
check "a damaged measurement is passed over" begun --batch-size 4 --epochs 1 --nproc 2 --out damaged
check "and said" says "what was measured of this machine is not used"

# Synchronised batch norm is the batch norm of the big batch; by itself every rank has statistics of its own.
norm=$PWD_AT_START/tests/refs/dynamic_norm/model.pt2
python3 "$tensors" pictures.safetensors x=F32:48x3x8x8:rand y=I64:48:mod4
normed() { run "$weft" train "$norm" --data pictures.safetensors --threads 1 --optimizer sgd --lr 0.1 --epochs 3 "$@"; [ $code -eq 0 ]; }
check "batch norm, one rank" normed --batch-size 12 --out n1
check "batch norm, synchronised over two" normed --batch-size 6 --nproc 2 --buffers sync --out n2
check "batch norm, synchronised over three" normed --batch-size 4 --nproc 3 --buffers sync --out n3
check "batch norm, not synchronised" normed --batch-size 6 --nproc 2 --out n4
check "two: the losses of the big batch" close n1 n2 1e-5
check "three: the losses of the big batch" close n1 n3 1e-5
differ() { ! close "$@"; }
check "not synchronised: other losses" differ n1 n4 1e-4
check "averaged buffers" normed --batch-size 6 --nproc 2 --buffers mean --check-replicas 1 --out n5

# Elastic: 1, 2 and 4 ranks with the same four micro-batches in a step write the same bytes; without it they need not.
python3 "$tensors" words.safetensors idx=I64:64x16:mod59 targets=I64:64x16:mod53
python3 "$tensors" small.safetensors x=F32:96x3x16x16:rand y=I64:96:mod9
elastic() { # MODEL DATA OUT FLAGS...
    local model=$PWD_AT_START/tests/refs/$1/model.pt2 data=$2 out=$3
    shift 3
    run "$weft" train "$model" --data "$data" --threads 1 --optimizer adamw --clip-norm 0.3 --epochs 3 \
        --deterministic elastic --out "$out" "$@"
    [ $code -eq 0 ]
}
for case in gpt_tiny_adamw:words vit_tiny_groups:small; do
    model=${case%%:*} data=${case##*:}.safetensors
    check "elastic $model: one rank, four micro-batches" elastic $model $data $model.1 --accumulate 4
    check "elastic $model: two ranks, two micro-batches" elastic $model $data $model.2 --accumulate 2 --nproc 2
    check "elastic $model: four ranks" elastic $model $data $model.4 --nproc 4
    check "elastic $model: two threads" elastic $model $data $model.t --nproc 2 --accumulate 2 --threads 2
    for n in 2 4 t; do check "elastic $model, $n: the same bytes" cmp $model.1/final.safetensors $model.$n/final.safetensors; done
done
run "$weft" train "$norm" --data pictures.safetensors --batch-size 4 --nproc 2 --deterministic elastic --steps 1
check "elastic: statistics of a rank's own are refused, by node and line" says "elastic cannot hold"
run "$weft" train "$mlp" --data good.safetensors --batch-size 4 --nproc 3 --deterministic elastic --steps 1
check "elastic: three ranks are refused" says "3 processes of 1 micro-batches are no power of two"
for mpi in openmpi mpich; do
    if ! command -v mpirun.$mpi >/dev/null || [ ! -f "$WEFT_PLUGIN_DIR/libweft-mpi-$mpi.so" ]; then continue; fi
    run mpirun.$mpi -n 3 "$weft" train "$mlp" --data good.safetensors --batch-size 4 --deterministic elastic --steps 1
    check "elastic: three ranks under mpirun.$mpi are refused" says "3 processes of 1 micro-batches are no power of two"
done

# Evaluation is shared out, too.
check "evaluation on one rank" begun --batch-size 12 --epochs 1 --eval-data good.safetensors --out e1
check "evaluation on two" begun --batch-size 6 --epochs 1 --eval-data good.safetensors --nproc 2 --out e2
check "the same accuracy" test "$(grep -o '"eval_accuracy": [0-9.]*' e1/metrics.jsonl)" = "$(grep -o '"eval_accuracy": [0-9.]*' e2/metrics.jsonl)"

# Ranks under a launcher of somebody else, here torchrun's variables, may be started differently.
port=$((20000 + RANDOM % 20000))
as_rank() { # RANK FLAGS...
    local r=$1
    shift
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        timeout 60 "$weft" train "$mlp" --data good.safetensors --threads 1 --batch-size 6 --epochs 1 "$@"
}
as_rank 1 --lr 0.5 --out t >err1 2>&1 </dev/null &
as_rank 0 --lr 0.25 --out t >"$work/out" 2>"$work/err" </dev/null
code=$?
wait $!
other=$?
cat err1 >>"$work/err"
check "another rate: both end" test $code -eq 1 -a $other -eq 1
check "another rate: named" says "rank 0 has --lr 0.25, rank 1 has --lr 0.5"
check "another rate: nothing was trained" test ! -f t/final.safetensors
as_rank 1 --optimizer sgd --out t >err1 2>&1 </dev/null &
as_rank 0 --optimizer adamw --out t >"$work/out" 2>"$work/err" </dev/null
wait $!
cat err1 >>"$work/err"
check "another optimiser: named" says "optimizer"
python3 "$tensors" less.safetensors x=F32:36x8:rand y=I64:36:mod4
as_rank 1 --data less.safetensors --out t >err1 2>&1 </dev/null &
as_rank 0 --out t >"$work/out" 2>"$work/err" </dev/null
wait $!
cat err1 >>"$work/err"
check "other data: refused" says "error[W0452]: "

# A rank that is killed in the middle of a long run.
"$weft" train "$mlp" --data good.safetensors --threads 1 --batch-size 6 --steps 100000000 --nproc 2 --out killed >"$work/out" 2>"$work/err" </dev/null &
launcher=$!
for i in $(seq 100); do [ -s killed/metrics.jsonl ] && break; sleep 0.05; done
victim=$(pgrep -P $launcher | tail -1)
run "$weft" hang killed
check "weft hang: who is where" grep -q "rank 1" "$work/out"
kill -KILL "$victim"
wait $launcher
code=$?
check "killed: exit code" test $code -eq 1
check "killed: who" grep -q "was killed by signal 9" "$work/err"
check "killed: nothing is left" nothing_left

# Ctrl-C: the last whole step is saved.
"$weft" train "$mlp" --data good.safetensors --threads 1 --batch-size 6 --steps 100000000 --nproc 2 --out stopped >"$work/out" 2>"$work/err" </dev/null &
launcher=$!
for i in $(seq 100); do [ -s stopped/metrics.jsonl ] && break; sleep 0.05; done
kill -TERM $launcher
wait $launcher
code=$?
check "SIGTERM: exit code 143" test $code -eq 143
check "SIGTERM: saved" test -f stopped/final.safetensors
check "SIGTERM: nothing is left" nothing_left
run "$weft" verify "$resnet"
check "verify: four ranks of the recorded network" test $code -eq 0
end
