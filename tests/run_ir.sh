#!/bin/bash
# usage: tests/run_ir.sh WEFT [--bless] [FILE...]
# Golden tests of passes. A file of tests/ir holds the command, the graph and what comes out:
#
#     # run: opt --run=fuse/group
#     ...graph text...
#     # expect
#     ...text printed on stdout...
#
# or `# expect error` and the text on stderr, when the command must fail. The command gets the graph as a file after its
# arguments. With --bless the expected part is rewritten; review the diff. Prints TAP.
weft=$(realpath "$1")
shift
bless=0
[ "${1:-}" = --bless ] && { bless=1; shift; }
cd "$(dirname "$0")/ir" || exit 1
files=("$@")
[ ${#files[@]} -gt 0 ] || files=(*.ir)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
number=0 bad=0
for file in "${files[@]}"; do
    number=$((number + 1))
    name=$(basename "$file" .ir)
    read -r -a words < <(sed -n '1s/^# run: *//p' "$file")
    marker=$(grep -m1 -E '^# expect( error)?$' "$file")
    if [ ${#words[@]} -eq 0 ] || [ -z "$marker" ]; then
        echo "not ok $number - $name: no '# run:' or '# expect' line"
        bad=1
        continue
    fi
    sed -e '1d' -e '/^# expect\( error\)\?$/,$d' "$file" >"$folder/$name.ir"
    sed -e '1,/^# expect\( error\)\?$/d' "$file" >"$folder/want"
    (cd "$folder" && timeout 60 "$weft" "${words[@]}" "$name.ir" >out 2>err </dev/null)
    code=$?
    if [ "$marker" = "# expect error" ]; then
        got=$folder/err
        [ $code -ge 1 ] && [ $code -le 2 ] && wrong=0 || wrong=1
    else
        got=$folder/out
        wrong=$code
    fi
    if [ "$wrong" -ne 0 ]; then
        echo "not ok $number - $name: exit code $code"
        head -5 "$folder/err" | sed 's/^/#   /'
        bad=1
    elif cmp -s "$folder/want" "$got"; then
        echo "ok $number - $name"
    elif [ $bless -eq 1 ]; then
        { sed -e '/^# expect\( error\)\?$/,$d' "$file"; echo "$marker"; cat "$got"; } >"$folder/new"
        cp "$folder/new" "$file"
        echo "ok $number - $name (blessed)"
    else
        echo "not ok $number - $name: other text"
        diff -u "$folder/want" "$got" | tail -n +3 | head -40 | sed 's/^/#   /'
        bad=1
    fi
done
echo "1..$number"
exit $bad
