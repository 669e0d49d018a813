#!/bin/bash
# Formats of data on the command line: whatever the format, the same numbers train to the same bytes.
source "$(dirname "$0")/common.sh"
gpt=$refs/gpt_tiny_adamw/model.pt2
train() { "$weft" train "$mlp" --batch-size 8 --threads 1 --epochs 2 "$@"; }
tokens() { "$weft" train "$gpt" --threads 1 "$@"; }

# NumPy's files, made without NumPy: .npy by hand, .npz by Python's zipfile.
python3 - <<'P'
import random, struct, zipfile
from tensors import read, write
def npy(descr, shape, data):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data
parts = {}
for name, (dtype, shape, data) in read("good.safetensors").items():
    parts[name] = npy({"F32": "<f4", "I64": "<i8"}[dtype], tuple(shape), data)
    open(name + ".npy", "wb").write(parts[name])
for how, name in ((zipfile.ZIP_STORED, "stored.npz"), (zipfile.ZIP_DEFLATED, "deflated.npz")):
    with zipfile.ZipFile(name, "w", how) as z:
        for k, v in parts.items():
            z.writestr(k + ".npy", v)
# Tokens: three shards of llm.c, one of them in a raw file, too; the same windows as tensors. gpt_tiny's inputs are [*, 16].
random.seed(5)
rows, T = [], 16
for i, count in enumerate((400, 17, 900)):
    shard = [random.randrange(32) for _ in range(count)]
    raw = struct.pack(f"<{count}H", *shard)
    open(f"shard_{i}.bin", "wb").write(struct.pack("<256i", 20240520, 1, count, *([0] * 253)) + raw)
    open(f"raw_{i}.bin", "wb").write(raw)
    open(f"text_{i}.txt", "wb").write(bytes(shard))
    rows += [(shard[k:k + T], shard[k + 1:k + T + 1]) for k in range(0, count - T, T)]
def windows(which):
    return "I64", [len(rows), T], struct.pack(f"<{len(rows) * T}q", *(v for r in rows for v in r[which]))
write("windows.safetensors", {"idx": windows(0), "targets": windows(1)})
P
works "safetensors" train --data good.safetensors --out st
for f in stored.npz deflated.npz; do
    works "$f" train --data $f --out run-$f
    check "trains to the same bytes" cmp st/final.safetensors run-$f/final.safetensors
done
works "an .npy for each input" train --data x=x.npy --data y=y.npy --out npy
check "trains to the same bytes" cmp st/final.safetensors npy/final.safetensors
works "predictions need no labels, and pass over them" "$weft" run "$mlp" --data x=x.npy --data y=y.npy --batch-size 8 --out p.safetensors

works "windows as tensors" tokens --epochs 2 --data windows.safetensors --out windows
works "llm.c's shards" tokens --epochs 2 --data "idx,targets=shard_*.bin" --out shards
works "raw tokens" tokens --epochs 2 --data idx,targets=raw_0.bin --data idx,targets=raw_1.bin --data idx,targets=raw_2.bin --out raw
works "bytes of texts" tokens --epochs 2 --data "idx,targets=text_?.txt" --out text
for f in shards raw text; do check "$f: the same bytes" cmp windows/final.safetensors $f/final.safetensors; done
check "a line of metrics says how long the step waited for data" grep -qE '"step_ms": [0-9.e-]+, "data_ms": [0-9.e-]+' shards/metrics.jsonl
works "stopped in the second epoch" tokens --data "idx,targets=shard_*.bin" --steps 27 --total-steps 40 --checkpoint-every 27 --out part
works "resumed" tokens --epochs 2 --data "idx,targets=shard_*.bin" --resume part
check "the same bytes" cmp shards/final.safetensors part/final.safetensors
works "two ranks, windows as tensors" tokens --epochs 2 --epochs 2 --data windows.safetensors --nproc 2 --out windows2
works "two ranks, shards" tokens --epochs 2 --data "idx,targets=shard_*.bin" --nproc 2 --out shards2
check "the same bytes" cmp windows2/final.safetensors shards2/final.safetensors
check "other bytes than one rank" sh -c '! cmp -s shards/final.safetensors shards2/final.safetensors'

fails "no name for tokens" 1 "a file of tokens does not say which input it feeds; the inputs are idx, targets" tokens --data shard_0.bin
fails "a misspelt input" 1 "the model has no input target; its inputs are idx, targets" tokens --data idx,target=shard_0.bin
check "the nearest is named" grep -qF "did you mean targets?" err
fails "a glob that nothing fits" 1 "no file fits the pattern" tokens --data "idx,targets=none_*.bin"
printf '\x10\x27' | dd of=raw_0.bin bs=1 seek=40 conv=notrunc 2>/dev/null # token 20 becomes 10000, which the model has not
fails "a token beyond the vocabulary" 1 "holds 10000; 0 to 60 are allowed" tokens --data idx,targets=raw_0.bin --no-shuffle

# The recipe of docs/data.md, as it stands there, with a table for it: the loss of the first steps is the mean square of what the
# model gives for the numbers that the recipe makes (1e-5: sums of 16 in float32).
linreg=$refs/linreg_sgd/model.pt2
sed -n '/^# houses.yaml/,/^```/p' "$source/docs/data.md" | grep -v '^```' >houses.yaml
python3 - <<'P'
import random
random.seed(2)
with open("houses.csv", "w") as f:
    f.write("city,area,price,rooms,year\n")
    for i in range(40):
        f.write(f'"{random.choice(["Berlin", "Paris", "Rome"])}",{random.uniform(20, 200):.2f},{random.randrange(10**5, 10**6)},'
                f'{random.randrange(1, 9)},{random.choice(["", "1950", "2003"])}\n')
P
houses() { "$weft" train "$linreg" --data x,y=houses.csv --recipe houses.yaml --no-shuffle --threads 1 --optimizer sgd --lr 0 "$@"; }
works "a table by a recipe" houses --steps 2 --out houses
check "is what the recipe says" python3 - <<'P'
import csv, json
from tensors import read, values
w = [values(t) for t in read("houses/final.safetensors").values()]
weight, bias = next(v for v in w if len(v) == 4), next(v for v in w if len(v) == 1)
rows = list(csv.DictReader(open("houses.csv")))
assert any(not r["year"] for r in rows)
def x(r):
    v = [float(r["area"]), float(r["rooms"]), ["Berlin", "Paris", "Rome"].index(r["city"]), float(r["year"] or 1970)]
    return [(a - m) / s for a, m, s in zip(v, (90, 3, 0, 1970), (40, 2, 1, 30))]
for step in range(2):
    some = rows[16 * step:16 * step + 16]
    want = sum((sum(a * c for a, c in zip(weight, x(r))) + bias[0] - float(r["price"]) * 1e-6) ** 2 for r in some) / 16
    got = json.loads(open("houses/metrics.jsonl").readlines()[step])["loss"]
    assert abs(got - want) < 1e-5 * abs(want), (got, want)
P
echo '{x: {columns: [area], colums: [1]}}' >bad.yaml
fails "a key that is none" 2 "recipe: x: there is no key colums; did you mean columns?" "$weft" train "$linreg" --data x,y=houses.csv \
    --recipe bad.yaml --steps 1
works "predictions by the same recipe" "$weft" run "$linreg" --data x,y=houses.csv --recipe houses.yaml --out p.safetensors

# Categories that the training data make, in the order in which they appear, go with the weights.
sed 's/{city: \[.*\]}/{city: auto}/' houses.yaml >auto.yaml
python3 -c 'import struct; h = repr({"descr": "<f4", "fortran_order": False, "shape": (16, 4)}); h = h.ljust(117) + "\n"
open("x4.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + h.encode() + bytes(256))'
works "categories by the data" "$weft" train "$linreg" --data x,y=houses.csv --recipe auto.yaml --no-shuffle --threads 1 --optimizer sgd \
    --lr 1e-3 --steps 2 --out auto
check "are told, quoted" grep -qE '3 categories of column city, in order: ("(Berlin|Paris|Rome)"(, )?){3}$' err
check "and kept" grep -qE '^  categories: \{"city": \[("(Berlin|Paris|Rome)"(, )?){3}\]\}$' auto/recipe.yaml
# the same houses backwards: learnt anew, the categories would have other numbers
{ head -1 houses.csv; tail -n +2 houses.csv | tac; } >backwards.csv
works "predictions in the training's order" "$weft" run "$linreg" --weights auto/final.safetensors --data x=houses.csv --recipe auto/recipe.yaml \
    --out p1.safetensors
works "without a recipe it is the one beside the weights" "$weft" run "$linreg" --weights auto/final.safetensors --data x=backwards.csv --out p2.safetensors
check "which is said" grep -qF "the recipe is auto/recipe.yaml, beside the weights" err
works "auto takes the categories from there" "$weft" run "$linreg" --weights auto/best.safetensors --data x=backwards.csv --recipe auto.yaml --out p3.safetensors
check "which is said, too" grep -qF "the categories of column city are those of auto/recipe.yaml" err
check "all the same" python3 - <<'P'
from tensors import read, values
a, b, c = ([v for t in read(f"p{i}.safetensors").values() for v in values(t)] for i in (1, 2, 3))
assert len(a) == 40 and a == b[::-1] and b == c, (a, b, c)
P
works "metrics, too" "$weft" eval "$linreg" --weights auto/final.safetensors --data x,y=backwards.csv --loss mse --metrics loss
sed '$s/"[A-Z][a-z]*"/Oslo/' backwards.csv >oslo.csv
fails "another category" 1 'column city: "Oslo" is no category; there are "' "$weft" run "$linreg" --weights auto/final.safetensors --data x=oslo.csv \
    --out p4.safetensors
check "in its line" grep -qF -- '--> oslo.csv: line 41' err
check "and nothing is written" test ! -e p4.safetensors
fails "no list anywhere" 2 "the order of city is that of the training data" "$weft" run "$linreg" --data x=houses.csv --recipe auto.yaml --out p4.safetensors
check "says where it is" grep -qF "OUT/recipe.yaml" err
works "and none: without" "$weft" run "$linreg" --weights auto/final.safetensors --recipe none --data x=x4.npy --out p4.safetensors
sed 's/Paris/Par\xefs/' houses.csv >latin1.csv
fails "categories of another encoding" 1 'the category "Par' "$weft" train "$linreg" --data x,y=latin1.csv --recipe auto.yaml --steps 1

# Random crops: a run that is resumed sees those of one that nothing stopped.
lenet=$refs/lenet_sgd_nesterov/model.pt2
data pictures.safetensors x=F32:40x1x28x28:rand y=I64:40:mod10
echo 'x: {crop: random, padding: 3, flip: true}' >crops.yaml
crops() { "$weft" train "$lenet" --data pictures.safetensors --recipe crops.yaml --optimizer sgd --lr 0.05 --threads 1 "$@"; }
works "three epochs of crops" crops --steps 15 --out crops
works "stopped in the second" crops --steps 8 --total-steps 15 --checkpoint-every 8 --out crops8
works "resumed" crops --steps 15 --resume crops8
check "the same bytes" cmp crops/final.safetensors crops8/final.safetensors
works "without crops" "$weft" train "$lenet" --data pictures.safetensors --optimizer sgd --lr 0.05 --threads 1 --steps 15 --out whole
check "are other pictures" sh -c '! cmp -s crops/final.safetensors whole/final.safetensors'

# A folder of pictures, decoded by the thread that reads ahead. PNG by hand: rows of RGB behind a filter byte, packed by zlib.
vit=$refs/vit_tiny_groups/model.pt2
python3 - <<'P'
import os, random, struct, zlib
random.seed(3)
def png(path, w, h):
    rows = b"".join(b"\0" + bytes(random.randrange(256) for _ in range(3 * w)) for _ in range(h))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) +
                           chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
for folder, count in (("photos/train", 12), ("photos/test", 5)):
    for k in ("ape", "bee", "cow"):
        os.makedirs(f"{folder}/{k}")
        for i in range(count):
            png(f"{folder}/{k}/{i}.png", random.randrange(20, 40), random.randrange(20, 40))
P
echo 'x: {resize: 20, crop: random, flip: true, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}' >photos.yaml
photos() { "$weft" train "$vit" --data x,y=photos/train --recipe photos.yaml --threads 1 "$@"; }
works "pictures by a recipe" photos --eval-data x,y=photos/test --steps 15 --out photos1
works "stopped in the third epoch" photos --steps 13 --total-steps 15 --checkpoint-every 13 --out photos13
works "resumed" photos --steps 15 --resume photos13
check "the same bytes" cmp photos1/final.safetensors photos13/final.safetensors
works "two ranks" photos --nproc 2 --steps 7 --out photos2
works "two ranks, stopped" photos --nproc 2 --steps 4 --total-steps 7 --checkpoint-every 4 --out photos4
works "two ranks, resumed" photos --nproc 2 --steps 7 --resume photos4
check "the same bytes" cmp photos2/final.safetensors photos4/final.safetensors
works "predictions of pictures without classes" "$weft" run "$vit" --data "x=photos/test/bee" --out p.safetensors
works "info on them" "$weft" info p.safetensors
check "a row for each" grep -qE 'predictions +f32\[5, ' out

# Classes keep their numbers where folders are missing or more: they are written beside the weights.
check "the classes are told" grep -qF '"ape", "bee", "cow"' photos1/recipe.yaml
mkdir few rest && cp -r photos/test/bee photos/test/cow few && cp -r photos/test/ape rest
evaluated() { "$weft" eval "$vit" --weights photos1/final.safetensors --metrics loss,accuracy "$@"; }
works "evaluation of all three classes" evaluated --data x,y=photos/test
cp out three.out
works "of one" evaluated --data x,y=rest
cp out one.out
works "of the two others" evaluated --data x,y=few
check "counts them as what they are: together they are all" python3 - <<'P'
all3, one, two = ({k: float(v) for k, v in (line.split() for line in open(f))} for f in ("three.out", "one.out", "out"))
for k in all3:
    assert abs(15 * all3[k] - 5 * one[k] - 10 * two[k]) < 1e-5 * 15 * all3["loss"], (k, all3, one, two)  # sums in float32
P
cp out two.out
works "with a recipe of its own, too" evaluated --data x,y=few --recipe photos.yaml
check "the same" cmp out two.out
check "and says where the classes are from" grep -qF "the classes of input y are those of photos1/recipe.yaml" err
works "data that are no pictures, by the same weights" sh -c 'python3 "$0" plain.safetensors x=F32:4x3x16x16:rand y=I64:4:mod3 &&
    "$1" eval "$2" --weights photos1/final.safetensors --data plain.safetensors --recipe none' "$source/tests/e2e/tensors.py" "$weft" "$vit"
mkdir more && cp -r photos/test/. more && cp -r photos/test/bee more/elk
fails "a class that training did not see" 1 "the folder elk is none of the 3 classes (ape, ..)" evaluated --data x,y=more
fails "in a run's evaluation" 1 "the folder elk is none of the 3 classes (ape, ..)" photos --eval-data x,y=more --steps 1
works "a run's evaluation without a class" photos --eval-data x,y=few --steps 1 --out few1
echo 'y: {classes: [cow, ape, bee]}' >order.yaml
works "an order of one's own" "$weft" train "$vit" --data x,y=photos/train --recipe order.yaml --steps 1 --threads 1 --out order
check "is kept" grep -qF 'classes: ["cow", "ape", "bee"]' order/recipe.yaml
echo 'y: {classes: [cow, ape, cow]}' >twice.yaml
fails "a class twice" 2 "recipe: y.classes: cow is there twice" "$weft" train "$vit" --data x,y=photos/train --recipe twice.yaml --steps 1
head -c 300 photos/train/bee/3.png >short.png && mv short.png photos/train/bee/3.png
fails "a picture that is cut off" 1 "the picture cannot be read: it ends too early" photos --steps 15
check "is named" grep -qF "photos/train/bee/3.png" err

# Batches: of the export's size only, where that is fixed.
fails "another batch size than the export's" 2 "--batch-size 2, but the model was exported for batches of 4" tokens --data windows.safetensors --batch-size 2
check "and how to export it otherwise" grep -qF "dynamic_shapes=" err

# A file that is cut off while a run uses it: an error that names it.
python3 - "$weft" "$gpt" >out 2>err <<'P'
import os, subprocess, sys, time
with open("large.bin", "wb") as f:
    f.truncate(1 << 30)
p = subprocess.Popen([sys.argv[1], "train", sys.argv[2], "--data", "idx,targets=large.bin", "--steps", "100000000", "--threads",
                      "1", "--out", "cut"], stderr=subprocess.PIPE, text=True)
end = time.time() + 300
while time.time() < end and not (os.path.exists("cut/metrics.jsonl") and os.path.getsize("cut/metrics.jsonl") > 1000):
    time.sleep(0.02)
os.truncate("large.bin", 4096)
text = p.communicate(timeout=300)[1]
sys.stderr.write(text[-2000:])
assert p.returncode == 1, p.returncode
assert "changed or cut off while it is in use" in text and "large.bin" in text
P
say $? "a file that is cut off is an error, not a crash"

# 10 GiB in a sparse file, shuffled: the largest resident size stays that of a run with little data.
python3 - "$weft" "$gpt" >out 2>err <<'P'
import os, sys
with open("huge.bin", "wb") as f:
    f.truncate(10 << 30)
def peak(data):
    pid = os.fork()
    if not pid:
        os.dup2(os.open("train.log", os.O_WRONLY | os.O_CREAT), 2)
        os.execv(sys.argv[1], [sys.argv[1], "train", sys.argv[2], "--data", data, "--steps", "400", "--threads", "1"])
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, open("train.log").read()
    return usage.ru_maxrss / 1024
little, much = peak("idx,targets=raw_2.bin"), peak("idx,targets=huge.bin")
print(f"{little:.0f} MB, {much:.0f} MB", file=sys.stderr)
assert much - little < 64
P
say $? "10 GiB of tokens take less than 64 MB"
rm -f huge.bin large.bin
end
