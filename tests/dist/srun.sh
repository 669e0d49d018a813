#!/bin/bash
# Ranks as Slurm's srun starts them, by its variables: on one host without MPI, and what is said where MPI is needed. No Slurm
# is needed: N processes get what srun (23.11) gives them.
source "$(dirname "$0")/common.sh"
weft=${WEFT:-$PWD/build/weft} mlp=$PWD/tests/refs/dynamic_plain/model.pt2 tensors=$PWD/tests/e2e/tensors.py
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1
job=$((1000000 + RANDOM))
variables() { # RANK SIZE TASKS_PER_NODE NODE LOCAL: those of one step of a job
    echo SLURM_JOB_ID=$job SLURM_STEP_ID=0 SLURM_PROCID="$1" SLURM_NTASKS="$2" SLURM_STEP_NUM_TASKS="$2" \
        SLURM_STEP_TASKS_PER_NODE="$3" SLURM_TASKS_PER_NODE="$3" SLURM_NODEID="$4" SLURM_LOCALID="$5"
}
srun() { # N COMMAND...: as on one host; $code 0 when all ended well
    local n=$1 r pids=()
    shift
    for r in $(seq 0 $((n - 1))); do
        env $(variables "$r" "$n" "$n" 0 "$r") timeout -k 2 100 "$@" >"out.$r" 2>"err.$r" </dev/null &
        pids+=($!)
    done
    code=0
    for r in "${pids[@]}"; do wait "$r" 2>/dev/null || code=1; done
    cat out.? >"$work/out"
    cat err.? >"$work/err"
    rm -f out.? err.?
}

for n in 2 3 4; do
    srun $n "$rank" values 3000
    hash=$(sed -n 's/^hash //p' "$work/out")
    check "$n ranks" test $code -eq 0 -a -n "$hash"
    run "$rank" launch $n values 3000
    check "$n ranks: the bits of Weft's launcher" test "$hash" = "$(sed -n 's/^hash //p' "$work/out")"
done
srun 2 "$rank" hello
check "it says what launched it" grep -q "rank 1 of 2, launched by srun (SLURM_PROCID), transport local" "$work/out"

# The same program, unchanged, under both.
python3 "$tensors" good.safetensors x=F32:48x8:rand y=I64:48:mod4
flags=(train "$mlp" --data good.safetensors --threads 1 --optimizer adamw --batch-size 6)
run "$weft" "${flags[@]}" --epochs 2 --nproc 2 --out nproc
srun 2 "$weft" "${flags[@]}" --epochs 2 --out srun
check "weft train under srun" test $code -eq 0
check "the bytes of --nproc 2" cmp nproc/final.safetensors srun/final.safetensors
check "the launcher is printed" says "launched by srun"

# weft hang finds such ranks by the folder of their run, while they run.
srun 3 "$weft" "${flags[@]}" --steps 100000000 --out running &
for i in $(seq 200); do [ -s running/metrics.jsonl ] && break; sleep 0.05; done
run "$weft" hang running
check "weft hang: all ranks" test "$(grep -c '^  rank [012]: pid' "$work/out")" -eq 3
kill -TERM "$(cat running/ranks.pid)"
wait
check "SIGTERM of one stops all: saved" test -f running/final.safetensors
check "the trace is gone" test ! -e running/ranks.pid
srun 2 "$weft" "${flags[@]}" --nproc 3 --out no
check "another --nproc: refused" test $code -ne 0
check "another --nproc: said" says "3 ranks were asked for, but srun started 2"

# With --mpi=pmi2 and --mpi=pmix there are MPI's variables, too: on one host nothing needs them.
for r in 0 1; do env $(variables $r 2 2 0 $r) PMI_RANK=$r PMI_SIZE=2 PMI_FD=5 "$rank" hello >>pmi2 2>&1 & done
wait
check "--mpi=pmi2: srun is what started it" grep -q "rank 1 of 2, launched by srun (SLURM_PROCID), transport local" pmi2
for r in 0 1; do env $(variables $r 2 2 0 $r) PMIX_RANK=$r PMIX_NAMESPACE=slurm.pmix.$job.0 "$rank" hello >>pmix 2>&1 & done
wait
check "--mpi=pmix: srun is what started it" grep -q "rank 1 of 2, launched by srun (SLURM_PROCID), transport local" pmix

# Several hosts.
run env $(variables 1 4 "2(x2)" 0 1) "$rank" hello
check "two hosts without --mpi: refused" test $code -ne 0
check "two hosts without --mpi: what to type" says "srun --mpi=pmix weft"
check "two hosts without --mpi: why" says "4 ranks, of which 2 on this host"
run env $(variables 3 4 "1,3" 1 2) "$rank" hello
check "hosts with different numbers of ranks" says "4 ranks, of which 3 on this host"
run env $(variables 4 5 "2(x2),1" 2 0) "$rank" hello
check "the last of three hosts" says "5 ranks, of which 1 on this host"
for mpi in openmpi:PMIX mpich:PMI; do
    [ -f "$WEFT_PLUGIN_DIR/libweft-mpi-${mpi%:*}.so" ] || continue
    run env $(variables 1 2 "1(x2)" 1 0) ${mpi#*:}_RANK=1 "$rank" hello
    check "${mpi%:*} that does not meet the others is no silent single rank" test $code -ne 0
done

# mpirun inside a job sees Slurm's variables, and counts more; what no step started is one process.
for mpi in openmpi mpich; do
    if ! command -v mpirun.$mpi >/dev/null || [ ! -f "$WEFT_PLUGIN_DIR/libweft-mpi-$mpi.so" ]; then continue; fi
    how="--mca ras ^slurm --mca plm ^slurm" # no Slurm is here for them to ask
    [ $mpi = mpich ] && how="-launcher fork"
    run env $(variables 0 1 1 0 0) mpirun.$mpi $how -n 3 "$rank" hello
    check "mpirun.$mpi in a job" grep -q "rank 2 of 3, launched by .*MPI.*, transport mpi" "$work/out"
done
run env SLURM_JOB_ID=$job SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 "$rank" hello
check "a batch script is one process" grep -q "rank 0 of 1, started alone" "$work/out"
run env SLURM_JOB_ID=$job SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 "$weft" "${flags[@]}" --epochs 2 --nproc 2 --out batch
check "and starts ranks of its own" cmp nproc/final.safetensors batch/final.safetensors

# A rank that does not come, one that dies.
env $(variables 0 2 2 0 0) WEFT_COMM_TIMEOUT=1 timeout 60 "$rank" hello >"$work/out" 2>"$work/err"
check "a rank that does not come is named" says "of 2 ranks have not come: 1"
job=$((job + 1))
srun 3 "$rank" steps kill 1
check "killed: who" says "rank 1 (pid "
check "killed: once" said_once
check "nothing is left" nothing_left

# What the system's memory is divided by: the ranks of the host, not of the world.
if command -v mpirun.openmpi >/dev/null && [ -f "$WEFT_PLUGIN_DIR/libweft-mpi-openmpi.so" ]; then
    available() { # LOCAL_SIZE
        rm -rf memory
        run mpirun.openmpi -n 2 env OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE="$1" "$weft" "${flags[@]}" --steps 1 --out memory
        sed -n 's/.* of \([0-9.]*\) MiB available.*/\1/p' "$work/err" | head -1
    }
    apart=$(available 1) together=$(available 2)
    check "a host's ranks share its memory, those of others do not" awk -v a="$apart" -v b="$together" \
        'BEGIN { print "# MiB", a, b; exit !(a > 1.6 * b && b > 0) }'
fi
end
