#!/bin/bash
# One rank of three fails in every way that a rank can; the others end in bounded time, one message names rank, node and
# step, and neither processes nor shared memory are left.
source "$(dirname "$0")/common.sh"
weft=${WEFT:-$PWD/build/weft} mlp=$PWD/tests/refs/dynamic_plain/model.pt2
export XDG_CACHE_HOME=$work/cache
python3 tests/e2e/tensors.py "$work/x.safetensors" x=F32:48x8:rand y=I64:48:mod4

fault() { # NAME EXIT-CODE MILLISECONDS TEXT...   after `run`
    local name=$1 want=$2 limit=$3 text all=0
    shift 3
    for text in "$@"; do says "$text" || all=1; done
    check "$name: says who and where" test $all -eq 0
    check "$name: once" said_once
    check "$name: exit code $want, got $code" test "$code" -eq "$want"
    check "$name: within $limit ms, took $took" test "$took" -le "$limit"
    check "$name: nothing is left" nothing_left
}

run "$rank" launch 3 steps none 1 20
check "without a fault" test $code -eq 0
run "$rank" launch 3 steps kill
fault "killed" 1 5000 "rank 2 (pid " "was killed by signal 9" "computing %mm (step 5)"
WEFT_COMM_STALL=0.6 run "$rank" launch 3 steps stop 1
fault "stopped" 1 8000 "rank 1 (pid " "has not moved for" "computing %mm (step 5)"
WEFT_COMM_TIMEOUT=0.8 run "$rank" launch 3 steps hang 0
fault "hangs" 1 8000 "missing: rank 0 (pid " "computing %mm (step 5)" "at %grad (step 5)"
TEST_ABSENT=1 run "$rank" launch 3 steps none
fault "never starts" 1 8000 "1 of 3 ranks has not come, first rank 1"
run "$rank" launch 3 steps exit 0
fault "exits" 1 5000 "rank 0 (pid " "ended with exit code 0 before the other ranks" "(step 5)"
run "$rank" launch 3 steps leave
fault "leaves early" 1 5000 "rank 2 (pid " "has left the world" "at %grad (step 5)"
run "$rank" launch 3 steps error
fault "has an error of its own" 1 5000 "rank 2 (pid " "input x: sample 3 is nan" "at %mm" "Look at the data."
run "$rank" launch 3 steps differ
fault "does something else" 1 5000 "differ in the number of elements" "%other (step 5)" "%grad (step 5)"
run "$rank" launch 3 steps slow 1 8
check "slow is no fault" test $code -eq 0 -a $took -ge 700

# A stop shorter than the limit is no fault either.
WEFT_COMM_STALL=5 "$rank" launch 3 steps forever 0 150 >"$work/out" 2>"$work/err" &
launcher=$!
sleep 0.5
pids=$(pgrep -P $launcher)
first=${pids%%[!0-9]*}
kill -STOP "$first"
sleep 0.6
state=$(awk '{ print $3 }' "/proc/$first/stat")
kill -CONT "$first"
wait $launcher
check "half a second of stop passes (state $state)" test $? -eq 0 -a "$state" = T

# Nor is a pause of everything, longer than the limit: nobody watched meanwhile.
WEFT_COMM_STALL=0.8 "$rank" launch 3 steps forever 0 150 >"$work/out" 2>"$work/err" &
launcher=$!
sleep 0.5
pids="$launcher $(pgrep -P $launcher | tr '\n' ' ')"
kill -STOP $pids
sleep 1.6
state=$(awk '{ print $3 }' "/proc/$launcher/stat")
kill -CONT $pids
wait $launcher
check "a pause of all passes (state $state)" test $? -eq 0 -a "$state" = T

# The flight recorder, read by another process: while a rank is behind, and after it was killed (the launcher holds the
# memory; here it is kept from ending by being stopped itself).
TEST_OUT=$work WEFT_COMM_TIMEOUT=60 "$rank" launch 3 steps hang 1 2>/dev/null &
launcher=$!
sleep 1
"$weft" hang "$work" >"$work/out" 2>"$work/err"
check "weft hang DIR: who is behind, and where" grep -qE "^  rank 1: pid [0-9]+, step 5, computing %mm for .* <- behind" "$work/out"
check "weft hang DIR: the others wait" grep -qE "^  rank 2: pid [0-9]+, step 5, waiting %grad for " "$work/out"
kill -STOP $launcher
kill -KILL $(pgrep -P $launcher)
sleep 0.3
"$weft" hang $launcher >"$work/out" 2>"$work/err"
check "weft hang PID: survives the ranks" grep -qE "^  rank 1: pid [0-9]+, step 5, computing %mm" "$work/out"
kill -CONT $launcher
wait $launcher 2>/dev/null
"$weft" hang $launcher >"$work/out" 2>"$work/err"
check "weft hang: nobody is there" test $? -eq 2

# Interrupted, and killed itself.
"$rank" launch 3 steps forever >"$work/out" 2>"$work/err" &
launcher=$!
sleep 0.5
kill -TERM $launcher
wait $launcher
check "SIGTERM is passed on: 143" test $? -eq 143
check "SIGTERM: nothing is left" nothing_left
"$rank" launch 3 steps forever >"$work/out" 2>"$work/err" &
launcher=$!
sleep 0.5
check "ranks run" test "$(left_over | wc -l)" -ge 3
{ kill -KILL $launcher && wait $launcher; } 2>/dev/null
check "the launcher is killed: no rank outlives it" nothing_left

# torchelastic's file.
TORCHELASTIC_ERROR_FILE=$work/error.json run "$rank" launch 2 steps kill
check "error.json" python3 -c "
import json, sys
m = json.load(open('$work/error.json'))['message']
sys.exit(not ('rank 1' in m['message'] and '%mm' in m['message'] and
         m['extraInfo']['py_callstack'] == m['message'] and int(m['extraInfo']['timestamp']) > 0))"

# Under torchrun's environment the survivors notice by themselves; the one that was first speaks.
port=$((21000 + $$ % 10000))
for r in 0 1 2; do
    RANK=$r WORLD_SIZE=3 LOCAL_RANK=$r LOCAL_WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=$port "$rank" steps kill 1 2>"$work/err.$r" &
done
wait 2>/dev/null
cat "$work"/err.? >"$work/err"
check "torchrun: killed" says "rank 1 (pid "
check "torchrun: once" said_once
check "torchrun: nothing is left" nothing_left
RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 run "$rank" hello
check "torchrun on several hosts is told what to type" says "mpirun -n 4 --host HOST1:2,HOST2:2 weft"

for mpi in openmpi mpich; do
    if [ ! -f "$WEFT_PLUGIN_DIR/libweft-mpi-$mpi.so" ] || ! command -v mpirun.$mpi >/dev/null; then
        echo "# $mpi is not installed"
        continue
    fi
    run mpirun.$mpi -n 3 "$rank" steps kill
    check "$mpi: killed ends the job" test $code -ne 0 -a $took -le 20000
    check "$mpi: killed leaves nothing" nothing_left
    WEFT_COMM_STALL=0.6 run mpirun.$mpi -n 3 "$rank" steps stop 1
    check "$mpi: stopped: says who and where" grep -qE 'rank 1 \(pid [0-9]+\) has not moved for .*, computing %mm \(step 5\)' "$work/err"
    check "$mpi: stopped: once" said_once
    check "$mpi: stopped: in time" test $code -ne 0 -a $took -le 20000
    check "$mpi: stopped: nothing left" nothing_left
    WEFT_COMM_TIMEOUT=1 run mpirun.$mpi -n 3 "$rank" steps hang
    check "$mpi: hangs: says who and where" \
        grep -qE 'at %grad has waited .* missing: rank 2 \(pid [0-9]+\) is computing %mm \(step 5\)' "$work/err"
    check "$mpi: hangs: once" said_once
    check "$mpi: hangs: in time" test $code -ne 0 -a $took -le 20000
    check "$mpi: hangs: nothing left" nothing_left
    run mpirun.$mpi -n 3 "$rank" steps error
    check "$mpi: own error is said once" said_once
    check "$mpi: own error names the node" says "at %mm"
    # A training, whose processes are not ended by the launcher's SIGTERM before they have spoken.
    "$weft" train "$mlp" --data "$work/x.safetensors" --threads 1 --batch-size 6 --steps 1 --out "$work/cached" 2>"$work/err"
    rm -rf "$work/o"
    mpirun.$mpi -n 3 "$weft" train "$mlp" --data "$work/x.safetensors" --threads 1 --batch-size 6 --steps 100000000 --out "$work/o" \
        >"$work/out" 2>"$work/err" </dev/null &
    launcher=$!
    for i in $(seq 200); do [ -s "$work/o/metrics.jsonl" ] && break; sleep 0.05; done
    "$weft" hang "$work/o" >"$work/hang" 2>&1
    check "$mpi: weft hang: all ranks of the host" test "$(grep -cE '^  rank [012]: pid [0-9]+, step ' "$work/hang")" -eq 3
    victim=$(sed -n 's/^  rank 1: pid \([0-9]*\),.*/\1/p' "$work/hang")
    kill -KILL "$victim"
    wait $launcher
    check "$mpi: a killed rank: says who and where" \
        grep -qE "^error\[W0451\]: rank 1 \(pid $victim\) has ended, .* \(step [0-9]+\)" "$work/err"
    check "$mpi: a killed rank: once" said_once
    check "$mpi: a killed rank: nothing left" nothing_left
    # A rank that starts something else: MPI itself waits for it for ever.
    WEFT_COMM_TIMEOUT=2 run mpirun.$mpi -n 2 "$weft" train "$mlp" --data "$work/x.safetensors" --threads 1 --batch-size 6 --steps 1 \
        --out "$work/never" : -n 1 sleep 100
    check "$mpi: never starts: says who" says "error[W0453]: 2.0 s after the start 1 of 3 ranks has not come, first rank 2"
    check "$mpi: never starts: once" said_once
    check "$mpi: never starts: in time" test $code -ne 0 -a $took -le 20000
    check "$mpi: never starts: nothing left" nothing_left
    run mpirun.$mpi -n 3 "$rank" steps differ
    check "$mpi: a difference is said" says "cannot go on"
    check "$mpi: a difference is said once" said_once
done
# Variables of a launcher that is not there: MPI alone says 1 rank.
if [ -f "$WEFT_PLUGIN_DIR/libweft-mpi-openmpi.so" ]; then
    OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 run "$rank" hello
    check "an MPI of 1 rank under a launcher of 4 is an error" says "started rank 0 of 4 (OMPI_COMM_WORLD_RANK), but Open MPI"
fi
end
