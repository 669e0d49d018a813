#!/bin/bash
# Any split of a batch over ranks and micro-batches gives the whole batch's loss and gradients: with ragged labels under
# --loss-norm=tokens, and in a last step that is not full under --last-batch=pad and short, over each transport. Under
# --deterministic=elastic 1, 2 and 4 ranks give the same bits.
source "$(dirname "$0")/common.sh"
split=${WEFT_BUILD:-$PWD/build}/tests/dist_split
export XDG_CACHE_HOME=$work/cache
bits() { sed -n 's/^elastic //p' "$1" | sort; }
same_bits() { # of the cases that two outputs have in common, four at least
    join <(bits "$1" | sed 's/ /_/g; s/_\([0-9a-f]*\)$/ \1/') <(bits "$2" | sed 's/ /_/g; s/_\([0-9a-f]*\)$/ \1/') |
        awk '$2 == $3 { same++ } $2 != $3 { other++ } END { exit !(same > 3 && other == 0) }'
}
for last in drop pad short; do
    for n in 1 2 3 4; do
        run "$split" launch $n $last
        check "$n ranks, --last-batch $last" test $code -eq 0 -a "$(sed -n 's/^cases //p' "$work/out")" -ge 26
        cp "$work/out" "$work/$n"
        for mpi in openmpi mpich; do
            if [ $n -eq 1 ] || [ ! -f "$WEFT_PLUGIN_DIR/libweft-mpi-$mpi.so" ] || ! command -v mpirun.$mpi >/dev/null; then
                continue
            fi
            run mpirun.$mpi -n $n "$split" $last
            check "$mpi: $n ranks, --last-batch $last" test $code -eq 0
            check "$mpi: the same bits" test "$(bits "$work/out")" = "$(bits "$work/$n")"
        done
    done
    for n in 2 4; do # the cases that both have
        check "elastic: 1 and $n ranks, the same bits" same_bits "$work/1" "$work/$n"
    done
done
check "nothing is left" nothing_left
end
