#!/bin/bash
# Damaged exports: truncated, with flipped bits, renamed, and things that are no export at all.
source "$(dirname "$0")/common.sh"
train() { "$weft" train "$1" --data good.safetensors --steps 1 --batch-size 8 --threads 1; }
flip() { # FROM TO OFFSET
    cp "$1" "$2"
    python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(int(sys.argv[2])); b = f.read(1)[0]
f.seek(int(sys.argv[2])); f.write(bytes([b ^ 16]))' "$2" "$3"
}

size=$(stat -c %s "$mlp")
for part in 1 10 25 50 75 90 99; do
    head -c $((size * part / 100)) "$mlp" >cut.pt2
    fails "cut to $part %" 1 "cut.pt2" train cut.pt2
done
# Flipped bits: an error, or (in bytes that nobody reads) the same training; never a crash.
codes=
for i in $(seq 1 25); do
    flip "$mlp" flip.pt2 $((size * i / 26))
    train flip.pt2 >out 2>err
    codes="$codes $?"
    grep -qE '^error\[W[0-9]{4}\]: ' err || [ "${codes##* }" -eq 0 ] || say 1 "a flipped bit at $i/26 has no message"
done
check "25 flipped bits are errors or harmless:$codes" sh -c "! echo '$codes' | grep -qE '[2-9]|1[0-9]'"
check "and most of them are seen" test "$(echo "$codes" | tr ' ' '\n' | grep -c '^1$')" -ge 15

cp "$mlp" renamed.bin
works "an export may have any name" train renamed.bin
cp "$mlp" renamed.weft
works "even that of a compiled step" train renamed.weft
cp good.safetensors data.pt2
fails "data instead of a model" 1 "data.pt2" train data.pt2
echo "torch" >text.pt2
fails "a text file" 1 "text.pt2" train text.pt2
: >empty.pt2
fails "an empty file" 1 "empty.pt2" train empty.pt2
fails "a missing file" 1 "none.pt2: cannot open: No such file or directory" train none.pt2
fails "a folder" 1 "$folder" train "$folder"
python3 - "$mlp" <<'P'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as a, zipfile.ZipFile("other.pt2", "w") as b:
    for e in a.infolist():
        if not e.filename.endswith("model.json"):
            b.writestr(zipfile.ZipInfo(e.filename), a.read(e))
P
fails "an archive without its graph" 1 "other.pt2" train other.pt2
without() { # ENTRY   the export without the entries of that name
    python3 - "$mlp" "$1" <<'P'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as a, zipfile.ZipFile("less.pt2", "w") as b:
    for e in a.infolist():
        if not e.filename.endswith(sys.argv[2]):
            b.writestr(zipfile.ZipInfo(e.filename), a.read(e))
P
}
without /weight_0
fails "an archive without a weight" 1 "less.pt2: the data of tensor 'a.weight' are missing" train less.pt2
without /archive_version
fails "an archive without a version" 1 "less.pt2: the archive does not say which version it has" train less.pt2
"$weft" compile "$mlp" -o step.weft 2>/dev/null
size=$(stat -c %s step.weft)
head -c $((size / 2)) step.weft >cut.weft
fails "half a compiled step" 1 "cut.weft" train cut.weft
flip step.weft flip.weft 200
fails "a compiled step with a flipped bit" 1 "flip.weft" train flip.weft
end
