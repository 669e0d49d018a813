#!/bin/bash
# usage: tests/golden.sh WEFT [--bless] [FILE...]
# Golden files of errors: what the program says, to the letter, for each kind of error that it can reach. tests/golden/*.txt
# holds
#
#     # setup: SHELL COMMAND         any number, in a scratch folder
#     # run: SHELL COMMAND           `weft` is the program
#     # from: REGEX                  what is compared begins at this line of stderr (without it: at the error)
#     # exit N
#     ...the error that it ends with, and what follows it on stderr...
#
# $REFS is tests/refs. The folder holds model.pt2 (forward gives the loss; 2 to 64 rows), good.safetensors for it, predict.pt2 (forward gives
# predictions) and the tools tensors and repack. With --bless the expected part is rewritten; review the diff. The last line
# of TAP says whether every code of `weft explain` has a golden file here, stands in an expected error of tests/ir, or is in
# tests/golden/elsewhere.list, which says why not.
source=$(cd "$(dirname "$0")/.." && pwd)
weft=$(realpath "$1")
shift
bless=0
[ "${1:-}" = --bless ] && { bless=1; shift; }
files=("$@")
[ ${#files[@]} -gt 0 ] || files=("$source"/tests/golden/*.txt)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/cache"
ln -s "$weft" "$folder/bin/weft"
printf '#!/bin/sh\nexec python3 "%s/tests/e2e/tensors.py" "$@"\n' "$source" >"$folder/bin/tensors"
printf '#!/bin/sh\nexec python3 "%s/tests/golden/repack.py" "$@"\n' "$source" >"$folder/bin/repack"
chmod +x "$folder/bin/tensors" "$folder/bin/repack"
export PATH="$folder/bin:$PATH" XDG_CACHE_HOME="$folder/cache" WEFT_THREADS=1 LC_ALL=C REFS="$source/tests/refs"
unset WEFT_CACHE_DIR WEFT_DUMP_DIR WEFT_ISA WEFT_LOG WEFT_CC
number=0 bad=0
mapfile -t files < <(realpath "${files[@]}")
for file in "${files[@]}"; do
    number=$((number + 1))
    name=$(basename "$file" .txt)
    work=$folder/$name
    mkdir "$work"
    cd "$work" || exit 1
    ln -s "$source/tests/refs/dynamic_batch_mlp/model.pt2" model.pt2
    repack model.pt2 predict.pt2 'model.json=>{"user_output": {"arg": {"as_tensor": {"name": "cross_entropy_loss"}}}}, =>'
    tensors good.safetensors x=F32:40x12:rand y=I64:40:mod4
    sed -n 's/^# setup: //p' "$file" | while IFS= read -r line; do bash -c "$line" >/dev/null 2>&1; done
    timeout 60 bash -c "$(sed -n 's/^# run: //p' "$file")" >out 2>err </dev/null
    code=$?
    # what differs from one machine and place to the next
    sed -i "s|$work/||g; s|$source/||g; s|$folder|FOLDER|g; s|/tmp/[A-Za-z0-9._-]*|TMP|g; s|weft-cc-[A-Za-z0-9]*|weft-cc-N|; s|has [0-9]* cores*|has N cores|" err
    from=$(sed -n 's/^# from: //p' "$file")
    { echo "# exit $code"; sed -n "/${from:-^error}/,\$p" err; } >got # not the banner and the progress before
    sed -n '/^# exit/,$p' "$file" >want
    if cmp -s want got; then
        echo "ok $number - $name"
    elif [ $bless -eq 1 ]; then
        { grep -E '^# (setup|run|from): ' "$file"; cat got; } >new
        cp new "$file"
        echo "ok $number - $name (blessed)"
    else
        echo "not ok $number - $name: other text"
        diff -u want got | tail -n +3 | head -20 | sed 's/^/#   /'
        bad=1
    fi
done
number=$((number + 1))
seen=$(cat "$source"/tests/golden/*.txt "$source"/tests/ir/*.ir | grep -oE '^error\[W[0-9]{4}\]' | grep -oE 'W[0-9]+' | sort -u)
missing=$(for code in $(weft explain | grep -oE '^W[0-9]+'); do
    grep -q "$code" <<<"$seen" || grep -q "^$code " "$source/tests/golden/elsewhere.list" || echo "$code"
done)
if [ -z "$missing" ]; then
    echo "ok $number - every code has a golden file or a reason"
else
    echo "not ok $number - codes without a golden file:" $missing
    bad=1
fi
echo "1..$number"
exit $bad
