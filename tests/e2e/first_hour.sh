#!/bin/bash
# The first hour of somebody new: install, look around, train, stop, resume, ranks, results, a broken rank; every step with the
# time that it may take at most (several times what it takes on two cores, since tests run side by side).
source "$(dirname "$0")/common.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
build=${WEFT_BUILD:-$source/build}
gpt=$source/examples/gpt_tiny.pt2
python3 -c "open('words.txt', 'w').write('the sun is hot, the moon is cold, the sea is deep. ' * 4000)"

within() { # SECONDS NAME COMMAND...
    local limit=$1 name=$2 begun
    shift 2
    begun=$(date +%s%N)
    "$@" >out 2>err </dev/null
    local code=$? took=$((($(date +%s%N) - begun) / 1000000))
    [ $code -eq 0 ] || echo "# exit code $code" >>err
    [ $code -eq 0 ] && [ $took -le $((limit * 1000)) ]
    say $? "$name: $took ms of $limit s"
}
flags=(train "$gpt" --data x,y=words.txt --batch-size 16 --lr 3e-3 --threads 1)
train() { "$weft" "${flags[@]}" "$@"; }
# Shells let what they start in the background ignore Ctrl-C.
interruptible=(python3 -c "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])")
plain() { ! grep -q $'\x1b' out err; } # no escape codes, no bar

within 30 "install" cmake --install "$build" --prefix "$folder/usr"
weft=$folder/usr/bin/weft
export PATH=$folder/usr/bin:$PATH
within 30 "weft doctor" weft doctor
within 5 "weft info: coverage" weft info "$gpt"
check "every operator is there" grep -qE "op +aten\." out
check "no operator is missing" sh -c '! grep -qi "unsupported\|missing" out'

# The first line of progress, an estimate of what is left, Ctrl-C, and on.
"${interruptible[@]}" "$weft" "${flags[@]}" --steps 10000000 --log-every 50 --out run >out 2>err </dev/null &
pid=$!
begun=$(date +%s%N)
until grep -qE "^step +[0-9]+/" err || [ $((($(date +%s%N) - begun) / 1000000)) -gt 20000 ]; do sleep 0.05; done
took=$((($(date +%s%N) - begun) / 1000000))
check "a line of progress after $took ms (the step compiled in between): 20 s at most" grep -qE "^step +[0-9]+/.*loss.*eta" err
kill -INT $pid
wait $pid
check "Ctrl-C ends it with 130" test $? -eq 130
check "and keeps the weights" test -s run/final.safetensors
within 20 "a run with checkpoints" train --steps 60 --checkpoint-every 25 --out half
cp -r half again
within 20 "goes on" train --steps 120 --checkpoint-every 25 --resume again --out again
within 20 "the same without a stop" train --steps 120 --checkpoint-every 25 --out whole
check "bit for bit" cmp again/final.safetensors whole/final.safetensors
check "piped output is plain" plain
NO_COLOR=1 TERM=dumb COLUMNS=40 LANG=C LC_ALL=C within 20 "NO_COLOR, TERM=dumb, 40 columns, LANG=C" train --steps 20 --out dumb
check "plain, too" plain
check "metrics are JSON, a line each" python3 -c "
import json
lines = [json.loads(l) for l in open('whole/metrics.jsonl')]
assert sum('loss' in l for l in lines) == 120 and all(l['loss'] > 0 for l in lines if 'loss' in l)"
check "event files lie beside them" sh -c 'ls whole/events.out.tfevents.* >/dev/null'

# Ranks: the product's own, torchrun's variables, MPI: the same losses.
losses() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
within 30 "two ranks" train --steps 20 --nproc 2 --out two
port=$((20000 + RANDOM % 20000))
torchrun() {
    for r in 1 0; do
        RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port train --steps 20 --out torchrun &
    done
    wait -n && wait -n
}
within 30 "torchrun's environment" torchrun
check "the same losses" test "$(losses two)" = "$(losses torchrun)"
if command -v mpirun >/dev/null && ls "$build"/libweft-mpi-*.so >/dev/null 2>&1; then
    within 60 "mpirun" mpirun -n 2 weft train "$gpt" --data x,y=words.txt --batch-size 16 --lr 3e-3 --threads 1 --steps 20 --out mpi
    check "the same losses" test "$(losses two)" = "$(losses mpi)"
else
    echo "# no MPI here"
fi

# What was trained, used.
within 10 "predictions of text" weft run "$gpt" --weights whole/final.safetensors --prompt "the moon" --sample 40
check "go on from the prompt" grep -q "^the moon" out
within 20 "evaluation" weft eval "$gpt" --weights whole/final.safetensors --data x,y=words.txt --metrics loss,perplexity
within 10 "into the export" weft export "$gpt" --weights whole/final.safetensors -o trained.pt2
within 10 "into ONNX" weft export "$source/examples/houses.pt2" -o houses.onnx

# A rank is killed: who, and all end.
"$weft" "${flags[@]}" --steps 10000000 --nproc 2 --out killed >out 2>err </dev/null &
launcher=$!
for i in $(seq 200); do [ -s killed/metrics.jsonl ] && break; sleep 0.05; done
kill -KILL "$(pgrep -P $launcher | tail -1)"
begun=$(date +%s%N)
wait $launcher
check "a killed rank ends the run" test $? -eq 1
check "within 5 s" test $((($(date +%s%N) - begun) / 1000000)) -le 5000
check "and is named" grep -q "rank 1.* was killed by signal 9" err
end
