#!/bin/bash
# Models that call collectives themselves: recorded runs of PyTorch on 2, 3 and 4 ranks over each transport, named groups
# of ranks, and what is wrong with them.
source "$(dirname "$0")/common.sh"
weft=${WEFT:-$PWD/build/weft} refs=$PWD/tests/refs tensors=$PWD/tests/e2e/tensors.py
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1

mpis=()
for mpi in openmpi mpich; do
    if command -v mpirun.$mpi >/dev/null && [ -f "$WEFT_PLUGIN_DIR/libweft-mpi-$mpi.so" ]; then
        mpis+=($mpi)
    else
        echo "# no $mpi here"
    fi
done
for n in 2 3 4; do
    run "$weft" verify "$refs/collectives$n"
    check "PyTorch's run on $n ranks" test $code -eq 0
    for mpi in "${mpis[@]}"; do
        run mpirun.$mpi -n $n "$weft" verify "$refs/collectives$n"
        check "PyTorch's run on $n ranks, $mpi" test $code -eq 0
    done
done

# Groups of two among four: 0,1 and 2,3 in one direction, 0,2 and 1,3 in the other.
python3 "$tensors" data.safetensors x=F32:192x6:rand y=I64:192:mod4
model=$refs/collectives4/model.pt2
groups="--group 1=0-1/2-3 --group 3=0,2/1,3"
train() { # OUT FLAGS...
    local out=$1
    shift
    run "$weft" train "${step:-$model}" --data data.safetensors --threads 1 --epochs 2 --out "$out" "$@"
    [ $code -eq 0 ]
}
check "four ranks in groups of two" train four --nproc 4 $groups
check "without overlap" train serial --nproc 4 $groups --no-overlap
check "with two threads" train threads --nproc 4 $groups --threads 2
check "two micro-batches: the forward passes of each speak" train micro --nproc 4 $groups --accumulate 2
check "evaluated together" train evaluated --nproc 4 $groups --eval-data data.safetensors
check "in the memory of a core" train pinned --nproc 4 $groups --device core:0
run "$weft" compile $model --nproc 4 $groups -o step.weft
check "compiled ahead" test $code -eq 0
run "$weft" info step.weft
check "a compiled step says for which ranks" grep -q "^group      3=0,2/1,3$" "$work/out"
run "$weft" info $model
check "a model says which groups it names" grep -qE "^group      1  *of 2 ranks$" "$work/out"
step=step.weft check "and trained" train ahead --nproc 4
for d in serial threads evaluated pinned ahead; do check "$d: the same bytes" cmp four/final.safetensors $d/final.safetensors; done
for mpi in "${mpis[@]}"; do
    run mpirun.$mpi -n 4 "$weft" train $model --data data.safetensors --threads 1 --epochs 2 --out $mpi $groups
    check "$mpi: the same bytes" cmp four/final.safetensors $mpi/final.safetensors
done
check "another way to pair the ranks: other bytes" train other --nproc 4 --group 1=0,2/1,3 --group 3=0-1/2-3
check "indeed" sh -c '! cmp -s four/final.safetensors other/final.safetensors'
run "$weft" plan $model --nproc 4 $groups
check "the plan shows when they travel" grep -q "%all_gather_into_tensor.sent" "$work/out"

python3 "$tensors" odd.safetensors x=F32:50x6:rand y=I64:50:mod4
refused() { # NAME TEXT COMMAND...
    local name=$1 text=$2
    shift 2
    run "$@"
    check "$name" test $code -ne 0
    check "$name: said" says "$text"
}
t="$weft train $model --data data.safetensors --epochs 1 --out no"
refused "an undeclared group" 'the model names the group "1", which is not declared' $t --nproc 4
check "what to type" says "--group 1=0-1/2-3"
refused "a group of another size" 'the model says that group "1" has 2 ranks, but it has 4' $t --nproc 4 --group 1=0-3 --group 3=0,2/1,3
refused "another number of ranks" 'the model says that group "dp" has 2 ranks, but it has 3' \
    "$weft" train "$refs/collectives2/model.pt2" --data data.safetensors --nproc 3 --out no
refused "one rank" 'has 2 ranks, but it has 1' "$weft" train "$refs/collectives2/model.pt2" --data data.safetensors --out no
refused "predictions by one process" 'has 2 ranks, but it has 1' "$weft" run "$refs/collectives2/model.pt2" --data data.safetensors --out p.safetensors
refused "predictions by several" "weft run is one process" "$weft" run "$refs/collectives2/model.pt2" --data data.safetensors --out p.safetensors --nproc 2
refused "a rank that is not there" "there is no rank 4 among 4" $t --nproc 4 --group 1=0-1/2-4
refused "a rank twice" "rank 1 stands in it twice" $t --nproc 4 --group 1=0-1/1-2
refused "a rank in no set" "rank 3 is in no set" $t --nproc 4 --group 1=0/1/2
refused "sets of two sizes" "its sets have 2 and 1 ranks" $t --nproc 4 --group 1=0-1/2/3
refused "all ranks' name" "dp is all ranks already" $t --nproc 4 --group dp=0-1/2-3
refused "no name" "a name and '=' are expected first" $t --nproc 4 --group 0-1/2-3
refused "declared twice" "--group: 1 is declared twice" $t --nproc 4 --group 1=0-1/2-3 --group 1=0-1/2-3
refused "rows left over" "all ranks evaluate together" $t --nproc 4 $groups --eval-data odd.safetensors

# Ranks that were started with different groups.
port=$((20000 + RANDOM % 20000))
as_rank() { # RANK FLAGS...
    local r=$1
    shift
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        timeout 60 "$weft" train $model --data data.safetensors --threads 1 --epochs 1 --out t "$@"
}
for r in 1 2; do as_rank $r $groups >err$r 2>&1 </dev/null & done
as_rank 3 --group 1=0,2/1,3 --group 3=0-1/2-3 >err3 2>&1 </dev/null &
as_rank 0 $groups >"$work/out" 2>"$work/err" </dev/null
code=$?
wait
cat err1 err2 err3 >>"$work/err"
check "other groups: they do not agree" test $code -eq 1
check "other groups: named" says "rank 0 has --group 1=0-1/2-3 3=0,2/1,3, rank 3 has --group 1=0,2/1,3 3=0-1/2-3"
check "nothing is left" nothing_left
end
