#!/bin/bash
# The commands that README.md and docs/ show, as they stand there (docs.py), on small files of the kinds that they name.
source "$(dirname "$0")/common.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 WEFT_THREADS=1
export WEFT_PLUGIN_DIR=${WEFT_BUILD:-$source/build}
mkdir models trained tokens shards
cp "$mlp" models/loss.pt2
python3 "$source/tests/golden/repack.py" models/loss.pt2 models/predict.pt2 \
    'model.json=>{"user_output": {"arg": {"as_tensor": {"name": "cross_entropy_loss"}}}}, =>'
cp "$source/examples/gpt_tiny.pt2" models/gpt.pt2
cp "$source"/examples/houses.* .
cp houses.pt2 models/houses.pt2
for name in train test x; do data $name.safetensors x=F32:600x12:rand y=I64:600:mod4; done
python3 - <<'P'
import gzip, struct
n = 600
pixels = bytes(i * 37 % 256 for i in range(12 * n))
with gzip.open("images.gz", "wb") as f: f.write(struct.pack(">4B3I", 0, 0, 8, 3, n, 3, 4) + pixels)
with gzip.open("labels.gz", "wb") as f: f.write(struct.pack(">4BI", 0, 0, 8, 1, n) + bytes(i % 4 for i in range(n)))
def npy(path, descr, shape, data):
    head = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)).encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)
npy("images.npy", "<f4", (n, 12), struct.pack("<%df" % (12 * n), *(p / 255 for p in pixels)))
npy("labels.npy", "<i8", (n,), struct.pack("<%dq" % n, *(i % 4 for i in range(n))))
text = b"what is written here is read again and again. " * 300
open("corpus.txt", "wb").write(text)
for shard in 0, 1: open("tokens/train_%d.bin" % shard, "wb").write(struct.pack("<%dH" % len(text), *text))
P
"$weft" train models/loss.pt2 --data train.safetensors --eval-data test.safetensors --out trained/mlp >out 2>err &&
    "$weft" train models/gpt.pt2 --data x,y=corpus.txt --steps 5 --out trained/gpt >out 2>err &&
    "$weft" compile models/loss.pt2 -o step.weft 2>err && "$weft" graph models/predict.pt2 --loss cross_entropy --after=fuse/split >x.ir 2>err
[ $? -eq 0 ] || { cat err; exit 1; }
cp trained/mlp/final.safetensors shards/model.safetensors
ln -s "$source/tests" tests
python3 "$source/tests/e2e/docs.py" "$source" "$weft"
