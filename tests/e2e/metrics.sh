#!/bin/bash
# Metrics against the same numbers computed here from the predictions; early stopping, the best by a metric, across a resumption
# and ranks; predictions of many rows in little memory.
source "$(dirname "$0")/common.sh"
data rows.safetensors x=F32:43x12:rand y=I64:43:mod4
train() { "$weft" train "$mlp" --data good.safetensors --batch-size 8 --threads 1 "$@"; }

works "weights" train --steps 5 --out w
works "predictions of 43 rows in batches of 8" "$weft" run "$mlp" --weights w/final.safetensors --data rows.safetensors --batch-size 8 --threads 1 --out p.safetensors
works "metrics of them" "$weft" eval "$mlp" --weights w/final.safetensors --data rows.safetensors --batch-size 8 --threads 1 \
    --metrics loss,perplexity,accuracy,top2,top4,f1 --json
cp out metrics.json
# 1e-6: the losses are sums in float32. The rest are counts, divided in float64.
cat >formulas.py <<'P'
import json, math, sys
import tensors as files
def tensors(f):
    return {k: (t[1], files.values(t)) for k, t in files.read(f).items()}
def classes(predictions, labels):
    (rows, n), p = tensors(predictions)["predictions"]
    y = tensors(labels)["y"][1]
    row = [p[i * n:i * n + n] for i in range(rows)]
    said = [max(range(n), key=lambda c: r[c]) for r in row]
    m = {"samples": rows, "loss": sum(math.log(sum(map(math.exp, r))) - r[t] for r, t in zip(row, y)) / rows}
    m["perplexity"] = math.exp(m["loss"])
    m["accuracy"] = sum(a == b for a, b in zip(said, y)) / rows
    for k in (2, 4):
        m[f"top{k}"] = sum(t in sorted(range(n), key=lambda c: -r[c])[:k] for r, t in zip(row, y)) / rows
    f = []
    for c in set(said) | set(y):
        hit = sum(a == b == c for a, b in zip(said, y))
        f.append(2 * hit / (said.count(c) + y.count(c)))
    m["f1"] = sum(f) / len(f)
    return m
P
check "they are the numbers themselves" python3 - <<'P'
import json
from formulas import classes
got, want = json.load(open("metrics.json")), classes("p.safetensors", "rows.safetensors")
assert got.keys() == want.keys(), (got.keys(), want.keys())
assert all(abs(got[k] - want[k]) <= 1e-6 * abs(want[k]) for k in want), (got, want)
assert want["top4"] == 1 and 0 < want["accuracy"] < want["top2"] < 1 and want["f1"] != want["accuracy"], want
P
works "as text" "$weft" eval "$mlp" --weights w/final.safetensors --data rows.safetensors --batch-size 8 --threads 1
check "loss and accuracy without being asked" test "$(cut -d' ' -f1 out | tr '\n' ' ')" = "loss accuracy "

data line.safetensors x=F32:19x4:rand y=F32:19x1:rand
works "predictions of a line" "$weft" run "$refs/linreg_sgd/model.pt2" --data line.safetensors --threads 1 --out l.safetensors
works "its metrics" "$weft" eval "$refs/linreg_sgd/model.pt2" --data line.safetensors --metrics mse,mae,loss --threads 1 --json
cp out line.json
check "they are the numbers themselves, too" python3 - <<'P'
import json
from formulas import tensors
got, p, y = json.load(open("line.json")), tensors("l.safetensors")["predictions"][1], tensors("line.safetensors")["y"][1]
d = [a - b for a, b in zip(p, y)]
want = {"samples": 19, "mse": sum(x * x for x in d) / 19, "mae": sum(map(abs, d)) / 19}
want["loss"] = want["mse"]
assert all(abs(got[k] - want[k]) <= 1e-5 * abs(want[k]) for k in want), (got, want)
P

evaluate() { train --eval-data rows.safetensors --seed 3 "$@"; }
works "training with metrics" evaluate --epochs 2 --metrics loss,f1,top2 --out m
works "the last ones again" "$weft" eval "$mlp" --weights m/final.safetensors --data rows.safetensors --batch-size 8 --threads 1 --metrics loss,f1,top2 --json
check "are the lines' last" python3 - <<'P'
import json
line = [l for l in map(json.loads, open("m/metrics.jsonl")) if "eval_loss" in l]
got = json.loads(open("out").read())
assert len(line) == 2 and [line[-1]["eval_" + k] for k in ("loss", "f1", "top2")] == [got[k] for k in ("loss", "f1", "top2")], (line, got)
P

# Learning upwards: the first evaluation is the best loss, and no later one is better.
up() { evaluate --optimizer sgd --lr 0.2 --maximize --epochs 9 "$@"; }
works "early stopping" up --early-stop 3 --out e
check "it says so" grep -q "stopped early after step 20: accuracy was best\|stopped early after step [0-9]*: " err
works "of the loss" up --early-stop 3 --best-metric loss --out f
check "after the first epoch and three more" grep -q "stopped early after step 20: loss was best after step 5, 3 evaluations ago" err
check "four evaluations" test "$(grep -c eval_loss f/metrics.jsonl)" -eq 4
works "one epoch" up --best-metric loss --epochs 1 --out g
check "the best is that after the first" cmp f/best.safetensors g/final.safetensors
works "two epochs with checkpoints" up --epochs 2 --early-stop 3 --best-metric loss --checkpoint-every 5 --out h
works "and on" up --early-stop 3 --best-metric loss --checkpoint-every 5 --resume h
check "to the same step" grep -q "stopped early after step 20: loss was best after step 5, 3 evaluations ago" err
check "the same weights" cmp f/final.safetensors h/final.safetensors
check "the same best ones" cmp f/best.safetensors h/best.safetensors
works "once more: it is over" up --early-stop 3 --best-metric loss --checkpoint-every 5 --resume h
check "and stays so" sh -c "grep -q 'stopped early after step 20' err && cmp -s f/final.safetensors h/final.safetensors"
works "another metric to watch: it goes on" up --early-stop 5 --best-metric f1 --checkpoint-every 5 --epochs 5 --resume h
check "to its end" test "$(tail -1 h/metrics.jsonl | grep -o '"step": [0-9]*')" = '"step": 25'
works "two ranks" up --nproc 2 --buffers sync --early-stop 2 --best-metric loss --metrics loss,f1,accuracy --out r
check "stop together" grep -q "stopped early after step" err
works "their weights" "$weft" eval "$mlp" --weights r/final.safetensors --data rows.safetensors --batch-size 8 --threads 1 --metrics loss,f1,accuracy --json
check "have the metrics of one process" python3 - <<'P'
import json
line = [l for l in map(json.loads, open("r/metrics.jsonl")) if "eval_loss" in l][-1]
got = json.loads(open("out").read())
assert all(abs(line["eval_" + k] - got[k]) <= 1e-6 * abs(got[k]) for k in ("loss", "f1", "accuracy")), (line, got)
P

fails "no such metric" 2 "there is no metric 'acuracy'" evaluate --metrics acuracy --out z
check "its neighbour is named" grep -q "Did you mean accuracy" err
fails "nothing to compute it from" 2 "metric mse: the model has nothing to compute it from" evaluate --metrics mse --out z
fails "nothing to evaluate" 2 "option early-stop: nothing is evaluated" train --early-stop 3 --out z
fails "top0" 2 "there is no metric 'top0'" evaluate --metrics top0 --out z
check "no folder was begun" test ! -e z

# 400,000 rows of 4: 6 MB of predictions. A program that kept them all would need as much more than for 40,000.
python3 - <<'P'
import json, struct
for name, n in (("many", 400000), ("few", 40000)):
    head = json.dumps({"x": {"dtype": "F32", "shape": [n, 12], "data_offsets": [0, n * 48]}}).encode()
    head += b" " * (-len(head) % 8)  # data that are not aligned would be copied
    with open(name + ".safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        f.truncate(8 + len(head) + n * 48)
P
peak() { python3 -c '
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' "$weft" run "$mlp" --data "$1.safetensors" --batch-size 64 --threads 1 --out "$1.out"; }
few=$(peak few) many=$(peak many)
check "predictions of many rows" test "$(stat -c %s many.out)" -ge 6400000
# Pages of the mapped data count as the program's (17 MB more); the predictions must not come on top.
check "take the memory of few, but for the data ($few kB, $many kB)" test $((many - few)) -lt $((17280 + 3000))
# A loss that is no number is told, once, and is no silent gap in what weft eval prints.
data houses.safetensors x=F32:40x3:rand town=I64:40:mod6
data nan.safetensors x=F32:40x12:rand,5=nan y=I64:40:mod4
works "training on nan goes on" "$weft" train "$mlp" --data nan.safetensors --batch-size 8 --steps 8 --out nan
check "and says so, once" test "$(grep -c "the loss of step .* is nan" err)" -eq 1
works "its evaluation" "$weft" eval "$mlp" --weights nan/final.safetensors --data good.safetensors
check "shows it" grep -qE "^loss +nan" out
works "as JSON" "$weft" eval "$mlp" --weights nan/final.safetensors --data good.safetensors --json
check "null" grep -q '"loss": null' out
"$weft" eval "$mlp" --data nowhere.safetensors --json >out 2>err </dev/null
check "an error as JSON: the exit code" test $? -eq 1
check "the object" python3 -c '
import json
e = json.load(open("out"))["error"]
assert set(e) == {"code", "status", "message", "place", "help"}, e
assert e["code"] == "W0301" and e["status"] == "io" and "nowhere.safetensors" in e["message"], e'
check "and nothing else" sh -c '! grep -q "^error" err'
"$weft" verify nowhere --json --lrr 3 >out 2>err </dev/null
check "also of a wrong option: the exit code" test $? -eq 2
check "also of a wrong option: the object" python3 -c 'import json; assert json.load(open("out"))["error"]["code"] == "W0101"'
fails "an option that gives no results" 2 "weft train has no option --json" "$weft" train "$mlp" --data good.safetensors --json
check "says whose it is" grep -qF "It belongs to weft verify, eval;" err
fails "an option of training" 2 "weft eval has no option --epochs" "$weft" eval "$mlp" --data good.safetensors --epochs 3
fails "a model without a loss, data without classes" 2 "no loss is named" "$weft" eval "$source/examples/houses.pt2" \
    --data houses.safetensors
works "training without --out" "$weft" train "$mlp" --data good.safetensors --steps 2
check "says that nothing is kept" grep -q "without --out nothing is kept" err

end
