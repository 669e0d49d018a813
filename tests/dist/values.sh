#!/bin/bash
# Every collective, value for value and bit for bit, at 2, 3 and 4 ranks over each transport; equal hashes of all results
# are equal bits. 64 ranks on few cores; ranks under torchrun's environment.
source "$(dirname "$0")/common.sh"
export TEST_SEED=${TEST_SEED:-$RANDOM}
echo "# seed $TEST_SEED"
hash() { sed -n 's/^hash //p' "$work/out"; }

for n in 2 3 4; do
    run "$rank" launch $n values
    local_hash=$(hash)
    check "local, $n ranks" test $code -eq 0 -a -n "$local_hash"
    for mpi in openmpi mpich; do
        if [ ! -f "$WEFT_PLUGIN_DIR/libweft-mpi-$mpi.so" ] || ! command -v mpirun.$mpi >/dev/null; then
            echo "# $mpi is not installed"
            continue
        fi
        run mpirun.$mpi -n $n "$rank" values
        check "$mpi, $n ranks" test $code -eq 0
        check "$mpi, $n ranks: the bits of local" test "$(hash)" = "$local_hash"
    done
done
for mpi in openmpi mpich; do
    [ -x "$WEFT_PLUGIN_DIR/tests/dist_host_$mpi" ] || continue
    for level in single multiple; do
        run mpirun.$mpi -n 3 "$WEFT_PLUGIN_DIR/tests/dist_host_$mpi" $level tests/refs/dynamic_plain/model.pt2
        check "$mpi, a host program's communicator and training, MPI_THREAD_$level" test $code -eq 0
    done
done
check "nothing is left" nothing_left

run "$rank" launch 64 values 300
check "64 ranks" test $code -eq 0

# torchrun's environment, and an MPI launcher with the local transport: the ranks find each other by themselves.
torch() { # N [MODE...]
    local n=$1 r pids=()
    shift
    for r in $(seq 0 $((n - 1))); do
        RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 10000)) \
            "$rank" "$@" &
        pids+=($!)
    done
    wait_all=0
    for r in "${pids[@]}"; do wait "$r" || wait_all=1; done
    return $wait_all
}
torch 3 values 5000 >"$work/out" 2>"$work/err"
code=$? torch_hash=$(hash)
run "$rank" launch 3 values 5000
check "torchrun's environment" test $code -eq 0 -a -n "$torch_hash" -a "$torch_hash" = "$(hash)"
torch 2 hello >"$work/out" 2>"$work/err"
check "it says what launched it" grep -q "rank 1 of 2, launched by torchrun (RANK), transport local" "$work/out"
if command -v mpirun.openmpi >/dev/null; then
    WEFT_COMM=local run mpirun.openmpi -n 2 "$rank" hello
    check "local ranks under mpirun" grep -q "rank 1 of 2, launched by Open MPI (OMPI_COMM_WORLD_RANK), transport local" "$work/out"
fi
end
