#!/bin/bash
# Weights and optimiser state from files: one, several with an index, tied names, other floating-point types, what is missing
# or not the model's; what an index may name; training that goes on from another training's optimiser state.
source "$(dirname "$0")/common.sh"
train() { "$weft" train "$mlp" --data good.safetensors --batch-size 8 --threads 1 "$@"; }
predict() { "$weft" run "$mlp" --data good.safetensors --batch-size 8 --threads 1 "$@"; }

works "a run" train --steps 6 --seed 5 --out a
python3 - <<'P' || exit 1
import json, os, struct
from tensors import read, write
def index(path, tensors, **more):
    json.dump({"metadata": {"total_size": 1}, "weight_map": tensors, **more}, open(path, "w"))
w = read("a/final.safetensors")
names = sorted(w)
parts = {"one.safetensors": names[:2], "two.safetensors": names[2:]}
at = {k: f for f, ks in parts.items() for k in ks}
for folder in "whole", "odd", "linked", "up", "twice", "foreign", "absent":
    os.mkdir(folder)
    for f, ks in parts.items():
        write(f"{folder}/{f}", {k: w[k] for k in ks})
    index(f"{folder}/model.safetensors.index.json", at)
# the files themselves lie elsewhere
os.mkdir("elsewhere")
os.rename("linked/two.safetensors", "elsewhere/two.safetensors")
os.symlink("../elsewhere/two.safetensors", "linked/two.safetensors")
index("up/model.safetensors.index.json", {k: "../whole/" + f for k, f in at.items()})
write("twice/two.safetensors", {k: w[k] for k in names[1:]})
index("foreign/model.safetensors.index.json", at, script="x")
index("absent/model.safetensors.index.json", dict(at, more="two.safetensors"))
os.rename("odd/one.safetensors", "odd/first.safetensors")
os.symlink("first.safetensors", "odd/one.safetensors")  # a link that stays in its folder
write("short.safetensors", {k: w[k] for k in names[1:]})
write("long.safetensors", dict(w, extra=("F32", [1], b"\0" * 4)))
write("both.safetensors", dict({k: w[k] for k in names[1:]}, extra=("F32", [1], b"\0" * 4)))
write("shape.safetensors", dict(w, **{names[0]: ("F32", [1], b"\0" * 4)}))
write("type.safetensors", dict(w, **{names[0]: ("I64", w[names[0]][1], b"\0" * 2 * len(w[names[0]][2]))}))
half = {k: ("BF16", s, b"".join(d[i + 2:i + 4] for i in range(0, len(d), 4))) if t == "F32" else (t, s, d)
        for k, (t, s, d) in w.items()}
write("half.safetensors", half)  # cut off, not rounded: exact in float32 again
write("cut.safetensors", {k: ("F32", s, b"".join(b"\0\0" + d[i:i + 2] for i in range(0, len(d), 2))) if t == "BF16" else (t, s, d)
                           for k, (t, s, d) in half.items()})
P

works "predictions from one file" predict --weights a/final.safetensors --out one.out
works "from an index" predict --weights whole/model.safetensors.index.json --out index.out
works "from the folder of an index" predict --weights whole --out folder.out
works "over a link inside the folder" predict --weights odd --out odd.out
check "the same predictions from an index" cmp one.out index.out
check "the same predictions from a folder" cmp one.out folder.out
check "the same predictions over a link" cmp one.out odd.out
mkdir alone && cp a/final.safetensors alone/model.safetensors
works "a folder with one file" predict --weights alone --out alone.out
check "the same predictions from it" cmp one.out alone.out
works "weights in bfloat16" predict --weights half.safetensors --out half.out
check "which is said" grep -q "tensors were converted, the first is .*, from bf16 to f32" err
works "the same values in float32" predict --weights cut.safetensors --out cut.out
check "the same predictions" cmp half.out cut.out

fails "a folder without weights" 1 "holds neither model.safetensors nor" predict --weights elsewhere --out z
fails "an index that climbs" 1 "is no plain file name" predict --weights up --out z
fails "a link that leaves the folder" 1 "is a link that leaves its folder" predict --weights linked --out z
fails "a tensor in two files" 1 "should be in one.safetensors" predict --weights twice --out z
fails "an index with more in it" 1 "it holds 'script' beside metadata and weight_map" predict --weights foreign --out z
fails "a tensor that is in no file" 1 "tensor more is not in two.safetensors" predict --weights absent --out z
ln -sf /proc/self/environ whole/two.safetensors
fails "a link to anywhere" 1 "is a link that leaves its folder" predict --weights whole --out z
rm whole/two.safetensors && mkfifo whole/two.safetensors
fails "a pipe in place of a file" 1 "is a pipe, not a file" timeout 20 "$weft" run "$mlp" --data good.safetensors --batch-size 8 --weights whole --out z
echo '{"weight_map": {"a": 3}}' >bad.index.json
fails "no name of a file" 1 "the file of tensor a is no text" predict --weights bad.index.json --out z
echo '[1]' >bad.index.json
fails "no index" 1 "it is no JSON object" predict --weights bad.index.json --out z

fails "missing" 1 "it does not hold the model's weights: 1 missing" predict --weights short.safetensors --out z
fails "unexpected" 1 "it does not hold the model's weights: 1 unexpected" predict --weights long.safetensors --out z
fails "both at once" 1 "1 missing, 1 unexpected" predict --weights both.safetensors --out z
check "the unexpected one is named" grep -q "unexpected: extra" err
check "and a way out" grep -q -- "--strict=false" err
works "not strict" predict --weights both.safetensors --strict=false --out loose.out
check "what stays as it is" grep -q "1 of the weights is missing and left as they are" err
check "what is left out" grep -q "1 of its tensors is not the model's and left out: extra" err
fails "another shape, strict or not" 1 "f32[1] in the file" predict --weights shape.safetensors --strict=false --out z
fails "another kind of number" 1 "i64[" predict --weights type.safetensors --strict=false --out z

# A tied weight: under either name, or both with one value.
gpt=$refs/gpt_tiny_adamw
python3 - "$gpt" <<'P' || exit 1
import json, sys, zipfile
import tensors
z = zipfile.ZipFile(sys.argv[1] + "/model.pt2")
config = json.loads(z.read("model/data/weights/model_weights_config.json"))["config"]
head = {}
def add(name, data):
    head[name] = "F32", [s["as_int"] for s in config[name]["tensor_meta"]["sizes"]], data
def write(path):
    tensors.write(path, head)
    head.clear()
raw = {k: z.read("model/data/weights/" + v["path_name"]) for k, v in config.items()}
tied = [k for k in config if config[k]["path_name"] == "weight_0"]
assert len(tied) == 2, tied
for k in config:
    add(k, raw[k])
write("tied.safetensors")
for k in config:
    if k != tied[0]:
        add(k, raw[k])
write("second.safetensors")
for k in config:
    add(k, bytes(len(raw[k])) if k == tied[1] else raw[k])
write("untied.safetensors")
P
data tokens.safetensors idx=I64:4x16:mod61 targets=I64:4x16:mod61
tied() { "$weft" run "$gpt/model.pt2" --data tokens.safetensors --threads 1 "$@"; }
works "a tied weight under both names" tied --weights tied.safetensors --out t1
works "under its second name" tied --weights second.safetensors --out t2
check "the same predictions" cmp t1 t2
fails "with two values" 1 "with which it is one tensor in the model" tied --weights untied.safetensors --out z

# Ten steps, and five and five of them by way of the two files: the same bytes, with bias corrections and schedule.
halves() { # NAME OPTION...
    local name=$1
    shift
    rm -rf ten five more
    works "$name: ten steps" train --no-shuffle --schedule cosine --lr 0.05 "$@" --steps 10 --out ten
    works "$name: five" train --no-shuffle --schedule cosine --lr 0.05 "$@" --steps 5 --total-steps 10 --save-optimizer --out five
    works "$name: five more" train --no-shuffle --schedule cosine --lr 0.05 "$@" --steps 5 --out more \
        --weights five/final.safetensors --optimizer-state five/optimizer.safetensors
    check "$name: the same weights" cmp ten/final.safetensors more/final.safetensors
}
halves sgd --optimizer sgd --momentum 0.9 --dampening 0.5
halves adam --optimizer adam --amsgrad
halves rmsprop --optimizer rmsprop --centered --momentum 0.9
halves adagrad --optimizer adagrad --lr-decay 0.1
halves adamw --optimizer adamw
on() { train --no-shuffle --schedule cosine --lr 0.05 --weights five/final.safetensors --optimizer-state five/optimizer.safetensors "$@"; }
works "three of the five, with checkpoints" on --steps 3 --total-steps 10 --checkpoint-every 2 --out parts
works "the rest, resumed" on --steps 5 --checkpoint-every 2 --resume parts --save-optimizer
check "the same weights" cmp ten/final.safetensors parts/final.safetensors
check "ten steps are done" python3 -c '
from tensors import read, values
h = read("parts/optimizer.safetensors")
assert values(h["step"]) == (10,)
assert {k.split("/")[0] for k in h} == {"step", "exp_avg", "exp_avg_sq"}, h.keys()'
fails "state of another optimiser" 1 "it does not hold the model's optimiser state: " on --optimizer sgd --momentum 0.9 --steps 1 --out z
fails "no state" 1 "needs \`step\`" train --optimizer-state five/final.safetensors --steps 1 --out z

# weft export
works "an export without new weights" "$weft" export "$gpt/model.pt2" -o same.pt2
check "is the same file" cmp same.pt2 "$gpt/model.pt2"
works "an export with other weights" "$weft" export "$mlp" --weights a/final.safetensors -o new.pt2
check "is another" sh -c "! cmp -s new.pt2 '$mlp'"
works "its predictions" "$weft" run new.pt2 --data good.safetensors --batch-size 8 --threads 1 --out new.out
check "are those of the weights" cmp new.out one.out
works "its weights as one file" "$weft" export new.pt2 -o new.safetensors
check "are the weights" cmp new.safetensors a/final.safetensors
works "over an earlier one" "$weft" export "$mlp" --weights a/final.safetensors -o new.pt2
fails "not over itself" 2 "new.pt2 would be written over: this command reads the model from there" "$weft" export new.pt2 \
    --weights a/final.safetensors -o new.pt2
works "is still read" "$weft" info new.pt2
works "a compiled step" "$weft" compile "$mlp" -o step.weft
fails "an export of a compiled step" 1 "holds no export" "$weft" export step.weft -o z.pt2
fails "no name" 2 "there is no --out" "$weft" export "$mlp"
fails "a name that says nothing" 2 "it ends in neither" "$weft" export "$mlp" -o z.bin
fails "weights of another model" 1 "missing" "$weft" export "$gpt/model.pt2" --weights a/final.safetensors -o z.pt2
check "nothing was written" test ! -e z.pt2

# The evaluation form as ONNX, taken apart here (make check-python has onnxruntime run it).
works "an ONNX model" "$weft" export "$gpt/model.pt2" --weights tied.safetensors --predictions 1 -o gpt.onnx
check "of the operators, inputs and weights that belong there" python3 - "$gpt" <<'P'
import sys
from protobuf import fields
from tensors import read
def all_of(b, k):
    return [v for n, v in fields(b) if n == k]
m = open("gpt.onnx", "rb").read()
assert all_of(m, 1) == [8] and all_of(m, 2) == [b"weft"]
assert [(all_of(o, 1), all_of(o, 2)) for o in all_of(m, 8)] == [([b""], [18])]
graph, = all_of(m, 7)
def shape(info):
    tensor, = all_of(all_of(info, 2)[0], 1)
    return all_of(tensor, 1)[0], [all_of(d, 1)[0] for d in all_of(all_of(tensor, 2)[0], 1)]
assert [(all_of(i, 1)[0], shape(i)) for i in all_of(graph, 11)] == [(b"idx", (7, [4, 16]))]
assert [(all_of(o, 1)[0], shape(o)) for o in all_of(graph, 12)] == [(b"predictions", (1, [4, 16, 61]))]
kinds = [all_of(n, 4)[0].decode() for n in all_of(graph, 1)]
count = {k: kinds.count(k) for k in ("LayerNormalization", "Softmax", "MatMul", "Gather")}
assert count == {"LayerNormalization": 5, "Softmax": 2, "MatMul": 13, "Gather": 2}, count
weights = {all_of(t, 8)[0].decode(): (all_of(t, 1), all_of(t, 9)[0]) for t in all_of(graph, 5)}
want = {k: (shape, data) for k, (_, shape, data) in read("tied.safetensors").items()}
named = [k for k in weights if k in want]
assert len(named) == len(want) - 1 and all(weights[k] == want[k] for k in named), (len(named), len(want))
# every value is made before it is read, and once
made = {b""} | {all_of(i, 1)[0] for i in all_of(graph, 11)} | {k.encode() for k in weights}
for node in all_of(graph, 1):
    assert all(v in made for v in all_of(node, 1)), all_of(node, 1)
    for v in all_of(node, 2):
        assert v not in made
        made.add(v)
assert b"predictions" in made
P
works "the same again" "$weft" export "$gpt/model.pt2" --weights tied.safetensors --predictions 1 -o gpt2.onnx
check "has the same bytes" cmp gpt.onnx gpt2.onnx

# Weights beside the model, as of 2 GB: here from 4 KB on.
outside() { WEFT_ONNX_LIMIT=4K "$weft" export "$gpt/model.pt2" --weights tied.safetensors --predictions 1 -o "$1"; }
mkdir big
works "a model with its weights in a second file" outside big/gpt.onnx
check "which is said" grep -qF "the weights are in big/gpt.onnx.data: keep it beside the model" err
check "the same weights, each in its place" python3 - <<'P'
from protobuf import fields
def all_of(b, k):
    return [v for n, v in fields(b) if n == k]
def tensors(path):
    graph, = all_of(open(path, "rb").read(), 7)
    return {all_of(t, 8)[0]: t for t in all_of(graph, 5)}, all_of(graph, 1), [all_of(graph, k) for k in (11, 12)]
whole, nodes, ends = tensors("gpt.onnx")
split, same_nodes, same_ends = tensors("big/gpt.onnx")
beside = open("big/gpt.onnx.data", "rb").read()
assert whole.keys() == split.keys() and nodes == same_nodes and ends == same_ends
assert beside.startswith(b"weights of an ONNX model, written by weft\n")
read, places, outside = {v for node in nodes for v in all_of(node, 1)}, [(0, 64)], 0
for name, t in whole.items():
    raw, s = all_of(t, 9)[0], split[name]
    assert name in read, f"nobody reads {name}"
    assert [all_of(t, k) for k in (1, 2)] == [all_of(s, k) for k in (1, 2)]
    if len(raw) < 1024:
        assert all_of(s, 9) == [raw] and not all_of(s, 13) and not all_of(s, 14)
        continue
    entry = {all_of(e, 1)[0]: all_of(e, 2)[0] for e in all_of(s, 13)}
    assert all_of(s, 14) == [1] and not all_of(s, 9) and entry.keys() == {b"location", b"offset", b"length"}
    at, n = int(entry[b"offset"]), int(entry[b"length"])
    assert entry[b"location"] == b"gpt.onnx.data" and at % 64 == 0 and beside[at:at + n] == raw, name
    places.append((at, at + n))
    outside += 1
assert outside > 5 and all(a[1] <= b[0] for a, b in zip(sorted(places), sorted(places)[1:]))
P
cp big/gpt.onnx.data first.data
works "again, over both" outside big/gpt.onnx
check "the same bytes" cmp big/gpt.onnx.data first.data
mv big/gpt.onnx big/first.onnx
echo notes >big/gpt.onnx.data
fails "over somebody else's file" 2 "big/gpt.onnx.data exists and does not hold the weights of an ONNX model of Weft's" outside big/gpt.onnx
check "nothing was written" sh -c 'test ! -e big/gpt.onnx && test "$(cat big/gpt.onnx.data)" = notes && test "$(ls big | wc -l)" = 2'
WEFT_ONNX_LIMIT=2Q fails "a limit that is no size" 2 "WEFT_ONNX_LIMIT=2Q: a size such as 64M or 1G is expected" "$weft" export "$gpt/model.pt2" -o z.onnx
works "predictions without an output's number" "$weft" export "$gpt/model.pt2" -o gpt3.onnx
fails "an output that needs the loss" 1 "nn.cross_entropy: ONNX export: ONNX has no operator for it" "$weft" export "$gpt/model.pt2" --predictions 0 -o z.onnx
check "the Python line is named" grep -q "from .*make_fixtures.py:" err
fails "an output that is not there" 2 "the model has no such output" "$weft" export "$gpt/model.pt2" --predictions 7 -o z.onnx
check "nothing was written" test ! -e z.onnx
end
