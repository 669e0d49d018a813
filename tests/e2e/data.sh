#!/bin/bash
# Formats of data on the command line: whatever the format, the same numbers train to the same bytes.
source "$(dirname "$0")/common.sh"
gpt=$refs/gpt_tiny_adamw/model.pt2
train() { "$weft" train "$mlp" --batch-size 8 --threads 1 --epochs 2 "$@"; }
tokens() { "$weft" train "$gpt" --threads 1 "$@"; }

# NumPy's files, made without NumPy: .npy by hand, .npz by Python's zipfile.
python3 - <<'P'
import json, random, struct, zipfile
b = open("good.safetensors", "rb").read()
n = struct.unpack("<Q", b[:8])[0]
def npy(descr, shape, data):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data
parts = {}
for name, t in json.loads(b[8:8 + n]).items():
    s, e = t["data_offsets"]
    parts[name] = npy({"F32": "<f4", "I64": "<i8"}[t["dtype"]], tuple(t["shape"]), b[8 + n + s:8 + n + e])
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
def st(path, tensors):
    at, head, data = 0, {}, b""
    for k, v in tensors.items():
        d = struct.pack(f"<{len(v)}q", *v)
        head[k] = {"dtype": "I64", "shape": [len(v) // T, T], "data_offsets": [len(data), len(data) + len(d)]}
        data += d
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)
st("windows.safetensors", {"idx": sum((r[0] for r in rows), []), "targets": sum((r[1] for r in rows), [])})
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
fails "a token beyond the vocabulary" 1 "10000 is out of range" tokens --data idx,targets=raw_0.bin --no-shuffle

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
