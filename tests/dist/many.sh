#!/bin/bash
# 64 ranks on few cores: all finish step 1, with one reading of the cache on a host, and with as many exchanges before it as
# two ranks need. Under mpirun one rank compiles, and the others take its step; without a cache, too.
source "$(dirname "$0")/common.sh"
weft=${WEFT:-$PWD/build/weft} mlp=$PWD/tests/refs/dynamic_plain/model.pt2 tensors=$PWD/tests/e2e/tensors.py
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1
python3 "$tensors" many.safetensors x=F32:256x8:rand y=I64:256:mod4
trained() { # OUT LAUNCHER... -- FLAGS...
    local out=$1 launcher=()
    shift
    while [ "$1" != -- ]; do launcher+=("$1"); shift; done
    shift
    run env WEFT_LOG=debug "${launcher[@]}" "$weft" train "$mlp" --data many.safetensors --threads 1 --batch-size 4 --steps 1 \
        --out "$out" "$@"
    [ $code -eq 0 ] && grep -q '"step": 1, ' "$out/metrics.jsonl"
}
reads() { grep -c "reading .*\.weft" "$work/err"; }
compiles() { grep -c "kernels, .* compiled now" "$work/err"; }
exchanges() { grep -c "rank 0: .* among" "$work/err"; }

check "64 ranks, empty cache" trained cold -- --nproc 64
check "one compiled" test "$(compiles)" -eq 1
check "64 ranks, warm cache" trained warm -- --nproc 64
check "none compiled" test "$(compiles)" -eq 0
check "the cache was read once" test "$(reads)" -eq 1
most=$(exchanges)
check "cold and warm: the same bytes" cmp cold/final.safetensors warm/final.safetensors
check "2 ranks" trained two -- --nproc 2
check "before step 1, 64 ranks exchange as often as 2" test "$most" -gt 0 -a "$most" -eq "$(exchanges)"
check "64 ranks without a cache" trained bare -- --nproc 64 --no-cache
check "no cache: one compiled" test "$(compiles)" -eq 1
check "no cache: the same bytes" cmp warm/final.safetensors bare/final.safetensors
for mpi in openmpi mpich; do
    if ! command -v mpirun.$mpi >/dev/null || [ ! -f "$WEFT_PLUGIN_DIR/libweft-mpi-$mpi.so" ]; then
        echo "# no $mpi here"
        continue
    fi
    rm -rf cache
    check "$mpi: 12 ranks, empty cache" trained $mpi.cold mpirun.$mpi -n 12 --
    check "$mpi: one compiled" test "$(compiles)" -eq 1
    check "$mpi: 12 ranks, warm cache" trained $mpi.warm mpirun.$mpi -n 12 --
    check "$mpi: the cache was read once" test "$(reads)" -eq 1 -a "$(compiles)" -eq 0
    check "$mpi: the same bytes" cmp $mpi.cold/final.safetensors $mpi.warm/final.safetensors
done

# Data travel by MPI's own memory: many ranks take no addresses for them where those are limited.
if [ -f "$WEFT_PLUGIN_DIR/libweft-mpi-mpich.so" ] && command -v mpirun.mpich >/dev/null; then
    check "mpich: 40 ranks with a gigabyte of addresses each" trained narrow bash -c 'ulimit -v 1000000; exec "$@"' - mpirun.mpich -n 40 --
fi

# What differs is said before anything is compiled.
rm -rf cache
port=$((20000 + RANDOM % 20000))
as_rank() { # RANK FLAGS...
    local r=$1
    shift
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port WEFT_LOG=debug \
        timeout 60 "$weft" train "$mlp" --data many.safetensors --threads 1 --batch-size 4 --steps 1 "$@"
}
as_rank 1 --clip-norm 1 >err1 2>&1 </dev/null &
as_rank 0 >"$work/out" 2>"$work/err" </dev/null
code=$?
wait $!
cat err1 >>"$work/err"
check "another option: refused" test $code -eq 1
check "another option: named" says "rank 0 has --clip-norm"
check "another option: nothing was compiled" test "$(compiles)" -eq 0
check "nothing is left" nothing_left
end
