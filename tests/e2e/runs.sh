#!/bin/bash
# Runs as a whole: the same seed gives the same bytes, with any number of threads; predictions; Ctrl-C; a full disk.
source "$(dirname "$0")/common.sh"
train() { "$weft" train "$mlp" --data good.safetensors --batch-size 8 "$@"; }

works "a run" train --epochs 3 --seed 5 --threads 1 --out a
works "again" train --epochs 3 --seed 5 --threads 1 --out b
works "with two threads" train --epochs 3 --seed 5 --threads 2 --out c
works "with another seed" train --epochs 3 --seed 6 --threads 1 --out d
check "the same bytes again" cmp a/final.safetensors b/final.safetensors
check "the same bytes with two threads" cmp a/final.safetensors c/final.safetensors
check "other bytes with another seed" sh -c '! cmp -s a/final.safetensors d/final.safetensors'
check "a line of metrics a step" test "$(wc -l <a/metrics.jsonl)" -eq 15
check "numbers of steps are integers, also 10" grep -q '^{"step": 10, "loss"' a/metrics.jsonl
works "steps run on into further epochs" train --steps 12 --threads 1 --out e
check "12 lines" test "$(wc -l <e/metrics.jsonl)" -eq 12
check "no path in the weights" sh -c "! grep -qF '$folder' a/final.safetensors"

exported=7
# Without --batch-size, the size that the export's example had (also from a compiled step), not one of our own.
works "no batch size" "$weft" train "$mlp" --data good.safetensors --epochs 1 --threads 1 --out usual
works "compile the export" "$weft" compile "$mlp" -o usual.weft
works "no batch size, compiled" "$weft" train usual.weft --data good.safetensors --epochs 1 --threads 1 --out usual2
check "batches of the export's size" test "$(wc -l <usual/metrics.jsonl)" -eq $((40 / exported))
check "the same from a compiled step" cmp usual/final.safetensors usual2/final.safetensors

# A lower instruction set than the machine's, with nothing in the cache: compiling asks oneDNN nothing at the machine's own.
data picture.safetensors x=F32:6x3x16x16:rand y=I64:6:mod3
for t in 1 2; do
    works "convolutions at x86-64-v3, $t threads" "$weft" train "$refs/vit_tiny_groups/model.pt2" \
        --data picture.safetensors --steps 2 --threads $t --isa v3 --out v3-$t
done
check "the same bytes" cmp v3-1/final.safetensors v3-2/final.safetensors

# A compiled step holds the weights of its loss: other weights in the same file are another step, also in the cache.
first_loss() { python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["loss"])' "$1/metrics.jsonl"; }
weighted() { train --no-shuffle --loss cross_entropy --predictions 1 --loss-weights w.safetensors --steps 1 --threads 1 --out "$1"; }
data w.safetensors w=F32:4:zero,0=1.0,1=1.0,2=1.0,3=1.0
works "weights of the classes" weighted w1
works "and again" weighted w2
data w.safetensors w=F32:4:zero,0=9.0,1=1.0,2=1.0,3=1.0
works "other weights in the same file" weighted w3
check "the same loss" test "$(first_loss w1)" = "$(first_loss w2)"
check "another loss" test "$(first_loss w1)" != "$(first_loss w3)"

# Evaluation over a number of rows that is no multiple of an exported batch: the padding of the last one counts nothing.
# 19 rows in batches of 16, against the mean square itself (1e-5: sums of 16 in float32, times 16/3 for the remainder).
data odd.safetensors x=F32:19x4:rand y=F32:19x1:rand
works "evaluate 19 rows in batches of 16" "$weft" train "$refs/linreg_sgd/model.pt2" --data odd.safetensors \
    --eval-data odd.safetensors --optimizer sgd --lr 0.1 --steps 3 --threads 1 --out odd
check "the mean over 19 rows" python3 - <<'P'
import json
from tensors import read, values
def tensors(f): return {k: values(t) for k, t in read(f).items()}
d, w = tensors("odd.safetensors"), tensors("odd/final.safetensors")
weight, bias = next(v for v in w.values() if len(v) == 4), next(v for v in w.values() if len(v) == 1)
p = [sum(a * b for a, b in zip(weight, d["x"][4 * i:4 * i + 4])) + bias[0] for i in range(19)]
want = sum((a - b) ** 2 for a, b in zip(p, d["y"])) / 19
got = json.loads(open("odd/metrics.jsonl").readlines()[-1])["eval_loss"]
assert abs(got - want) < 1e-5 * want, (got, want)
P

# Accumulation: the same rows in one batch or in several are the same training. The sums of 8 float32 terms in another
# order differ by about 1e-7, and so do the weights after five steps of SGD.
plain=$refs/accumulated_uneven/model.pt2
data rows.safetensors x=F32:40x8:rand y=I64:40:mod4
split() { "$weft" train "$plain" --data rows.safetensors --optimizer sgd --lr 0.3 --clip-norm 0.5 "$@"; }
works "a batch of 8" split --batch-size 8 --threads 1 --out k1
works "two of 4" split --batch-size 4 --accumulate 2 --threads 1 --out k2
works "four of 2" split --batch-size 2 --accumulate 4 --threads 1 --out k4
works "four of 2 with two threads" split --batch-size 2 --accumulate 4 --threads 2 --out k4b
check "the same bytes with two threads, accumulating" cmp k4/final.safetensors k4b/final.safetensors
cat >same.py <<'P'
import json, sys
from tensors import read, values
def run(folder):
    lines = [json.loads(l) for l in open(folder + "/metrics.jsonl")]
    return [[l[k] for l in lines] for k in ("loss", "grad_norm")] + [[v for t in read(folder + "/final.safetensors").values() for v in values(t)]]
one = run(sys.argv[1])
assert len(one[0]) >= 2 and one[0][0] != one[0][-1]
for folder in sys.argv[2:]:
    for a, b in zip(one, run(folder)):
        assert len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) <= 1e-6 * max(map(abs, a)), (folder, a, b)
P
same_training() { python3 same.py "$@"; }
check "the same losses and weights" same_training k1 k2 k4
works "two ranks of two of 2" split --batch-size 2 --accumulate 2 --nproc 2 --threads 1 --out k2r
check "the same rows give the same losses and weights on two ranks" same_training k1 k2r

# Batch statistics over two ranks, micro-batch by micro-batch: rank 0 takes rows 0 to 7 of a step and rank 1 rows 8 to 15,
# in two micro-batches each. One process that gets rows 0 to 3 and 8 to 11 first does the same.
python3 - <<'P'
from tensors import read, write
rows = [16 * s + r for s in (0, 1) for r in (0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15)] + list(range(32, 40))
def turned(data):
    item = len(data) // 40
    return b"".join(data[item * r:item * (r + 1)] for r in rows)
write("turned.safetensors", {k: (dtype, shape, turned(data)) for k, (dtype, shape, data) in read("rows.safetensors").items()})
P
statistics() { "$weft" train "$refs/accumulated_statistics/model.pt2" --no-shuffle --optimizer sgd --lr 0.1 --accumulate 2 --threads 1 "$@"; }
works "statistics of one process" statistics --data turned.safetensors --batch-size 8 --out s1
works "statistics of two ranks" statistics --data rows.safetensors --batch-size 4 --nproc 2 --buffers sync --out s2
works "statistics of each rank" statistics --data rows.safetensors --batch-size 4 --nproc 2 --out s3
check "synchronised in every micro-batch" python3 same.py s1 s2
check "and otherwise not" sh -c '! python3 same.py s1 s3'

works "compile with micro-batches" "$weft" compile "$plain" --optimizer sgd --clip-norm 0.5 --accumulate 4 -o k4.weft
works "train what was compiled" "$weft" train k4.weft --data rows.safetensors --lr 0.3 --batch-size 2 --threads 1 --weights k4/best.safetensors --steps 1 --out k4c
works "info on it" "$weft" info k4.weft
check "tells its micro-batches" grep -q '^accumulate 4 micro-batches' out
works "its plan" "$weft" plan k4.weft --batch-size 2
check "shows the micro-batch" grep -q '^micro-batch: .* slab' out
fails "too few rows for a step" 1 "40 samples do not fill one step of 9 batches of 8" split --batch-size 8 --accumulate 9 --out k9
for cached in no yes; do
    works "a model with batch statistics (compiled before: $cached)" train --accumulate 2 --steps 1 --out kb$cached
    check "is warned of, by node and line" grep -qE '^warning: --accumulate: statistics .*nn.normalize.* from .*\.py:[0-9]+' err
done
check "and came from the cache" grep -qF 'taken from the cache' err

# Predictions: the last batch is padded, the padding is cut. Labels are not needed.
data x.safetensors x=F32:37x12:rand
works "predict from an export" "$weft" run "$mlp" --weights a/final.safetensors --data x.safetensors --batch-size 8 --out p.safetensors
works "info on the predictions" "$weft" info p.safetensors
check "37 rows of 4" grep -qE 'predictions +f32\[37, 4\]' out
works "compile" "$weft" compile "$mlp" -o step.weft
works "predict from a compiled step" "$weft" run step.weft --weights a/final.safetensors --data x.safetensors --batch-size 8 --out q.safetensors
check "the same rows" python3 - <<'P'
from tensors import read, values
def rows(f): return values(read(f)["predictions"])[:148]
assert all(abs(x - y) < 1e-5 for x, y in zip(rows("p.safetensors"), rows("q.safetensors")))
P
data more.safetensors x=F32:40x12:rand
works "predict three rows more" "$weft" run step.weft --weights a/final.safetensors --data more.safetensors --batch-size 8 --out r.safetensors
check "padding changes nothing" python3 - <<'P'
from tensors import read
def rows(f): return read(f)["predictions"][2][:592]
assert rows("q.safetensors") == rows("r.safetensors")
P
fails "weights of another model" 1 "missing:" "$weft" run "$refs/linreg_sgd/model.pt2" --weights a/final.safetensors --data x.safetensors --out z.safetensors
check "write nothing" test ! -e z.safetensors

# Ctrl-C: the last whole step is kept, exit code 130. Started by Python, since a shell's background jobs ignore SIGINT.
for ranks in 2 1; do
    rm -rf stopped
    python3 - "$weft" "$mlp" $ranks >out 2>err <<'P'
import os, signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "train", sys.argv[2], "--data", "good.safetensors", "--batch-size", "8", "--steps",
                      "100000000", "--threads", "1", "--nproc", sys.argv[3], "--out", "stopped"], stderr=sys.stderr,
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
for _ in range(600):
    time.sleep(0.05)
    if os.path.exists("stopped/metrics.jsonl") and os.path.getsize("stopped/metrics.jsonl") > 500:
        break
p.send_signal(signal.SIGINT)
sys.exit(p.wait(30))
P
    say $(($? != 130)) "Ctrl-C ends $ranks ranks with 130"
    check "and with the same words" test "$(tail -3 err | sed 's/[0-9]* *;/N;/')" = "stopped after step N; weights are in stopped/final.safetensors
error[W0601]: stopped on request
  = note: weft explain W0601"
done
works "its weights can be used" "$weft" run "$mlp" --weights stopped/final.safetensors --data x.safetensors --out s.safetensors
check "its metrics are whole lines" python3 -c 'import json; [json.loads(l) for l in open("stopped/metrics.jsonl")]'

# A full disk: one error, no half-written file.
mkdir disk
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=64k tmpfs disk 2>/dev/null; then
    trap 'umount "$folder/disk"; cd /; rm -rf "$folder"' EXIT
    fails "a full disk while compiling" 1 "No space left" "$weft" compile "$mlp" -o disk/step.weft
    check "leaves no step" test -z "$(ls disk)"
    fails "a full disk while training" 1 "No space left" train --steps 5000 --threads 1 --out disk/run
    check "leaves no weights" test ! -e disk/run/final.safetensors
else
    echo "# no tmpfs can be mounted here: the full disk is left out"
fi
end
end
