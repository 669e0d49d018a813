#!/bin/bash
# What guides a person: settings in a file, the banner, the progress line on terminals and elsewhere, the summary, event files,
# logs of ranks, info, plan, doctor, explain, completions, man pages.
source "$(dirname "$0")/common.sh"
train() { "$weft" train "$mlp" --data good.safetensors --batch-size 8 --threads 1 "$@"; }

# --config and --print-config.
cat >run.yaml <<END
model: $mlp
lr: 3e-2          # a number
betas: [0.8, 0.9]
data: [x=good.safetensors, y=good.safetensors]
batch-size: 8
steps: 4
shuffle: false
threads: 1
param-group: ["*.bias:weight-decay=0"]
END
works "a run from a file alone" "$weft" train --config run.yaml --out a
check "and its banner says so" grep -qE '^  lr +0.03 +\(file\)$' err
check "steps by the file" grep -q '"step": 4, ' a/metrics.jsonl
check "with the file's rate" grep -q '"lr": 0.03, ' a/metrics.jsonl
works "a flag overrules the file" "$weft" train --config run.yaml --lr 0.5 --steps 2 --out b
check "the rate" grep -q '"lr": 0.5, ' b/metrics.jsonl
check "the origin" grep -qE '^  lr +0.5 +\(flag\)$' err
check "the steps" sh -c '! grep -q "\"step\": 3" b/metrics.jsonl'
works "a list is replaced, not added to" "$weft" train --config run.yaml --data good.safetensors --out c
works "print-config" env WEFT_ISA=v3 "$weft" train --config run.yaml --lr 0.25 --print-config
cp out printed.yaml
check "names where values come from" sh -c 'grep -qE "^lr: 0.25 +# flag$" out && grep -qE "^steps: 4 +# file$" out &&
    grep -qE "^isa: v3 +# environment$" out && grep -qE "^# epochs: none +# default$" out'
check "keeps lists" grep -qE '^data: \["x=good.safetensors", "y=good.safetensors"\] +# file$' out
works "what it prints runs" "$weft" train --config printed.yaml --out d
works "and prints the same again" "$weft" train --config printed.yaml --print-config
check "value for value" sh -c 'sed "s/ *#.*//" out >2nd; sed "s/ *#.*//" printed.yaml | cmp - 2nd'
check "and is what ran" sh -c 'grep -q "\"lr\": 0.25, " d/metrics.jsonl && grep -q "\"step\": 4, " d/metrics.jsonl'
printf 'lr: fast\n' >x.yaml
fails "a bad value names the file" 2 "option lr: \"fast\" is not a number" train --config x.yaml
check "in the place" grep -q -- '--> x.yaml' err
printf -- '- lr\n' >x.yaml
fails "a list instead of options" 2 "no mapping" train --config x.yaml
printf 'out: 1.10\n' >x.yaml
fails "a number where text is meant" 2 "no text in quotes" train --config x.yaml
printf 'config: y.yaml\n' >x.yaml
fails "a file that names a file" 2 "has no meaning inside a file" train --config x.yaml
fails "a file that is not there" 1 "No such file" train --config nowhere.yaml

# --dry-run: everything is told, nothing written.
works "a dry run" train --steps 5 --out dry --dry-run
check "tells the memory" grep -qE '^memory     MiB: weights 0.002, ' err
check "and the planned peak" grep -qE 'planned peak [0-9.]+ MiB' err
check "writes nothing" test ! -e dry
check "runs nothing" sh -c '! grep -q "^step [0-9]" err'
fails "a dry run of something else" 2 "--dry-run belongs to weft train" "$weft" plan "$mlp" --dry-run
fails "but finds what is wrong" 1 "no data" "$weft" train "$mlp" --data x=good.safetensors --dry-run

# The banner and the line, in a file.
works "a run with evaluation" train --steps 12 --log-every 5 --eval-data good.safetensors --out e
check "model" grep -qE '^model      580 parameters \(580 trainable\) in 5 tensors, f32$' err
check "its parts" sh -c 'grep -A 3 "^model" err | tail -n 3 | tr -s " " | tr "\n" ";" | grep -qxF " a 384 in 1 tensor; n 64 in 2 tensors; o 132 in 2 tensors;"'
check "inputs" grep -qE '^inputs     x f32\[8, 12\], y i64\[8\]$' err
check "step" grep -qE '^step       8 samples = 8 x 1 accumulated x 1 rank; 12 steps, 5 an epoch$' err
check "data" grep -qE '^data       40 samples, shuffled, seed 0$' err
check "lines every 5 steps and at the end" test "$(grep -cE '^step (5|10|12)/12  loss [0-9.]+  gnorm [0-9.]+  lr 1.00e-03  [0-9,.]+ samples/s  [0-9.]+ ms \(data [0-9]+%\)  mem [0-9]+ MiB  eta 0:00:0[0-9]$' err)" -eq 3
check "no control characters" sh -c '! grep -q "[[:cntrl:]]" err'
check "summary" grep -qE '^12 steps in 0:00:0[0-9], [0-9,]+ samples/s without the first$' err
check "the best evaluation" grep -qE '^best       step (5|10|12): eval (loss|accuracy) [0-9.]+ \(best.safetensors\)$' err
check "files" grep -qF 'files      e/final.safetensors, e/best.safetensors, e/metrics.jsonl' err
next=$(sed -n 's/^next       weft //p' err | sed 's/FILE/good.safetensors/')
# shellcheck disable=SC2086
works "the next command" "$weft" $next --batch-size 8
check "data_ms is in the metrics" grep -qE '"step_ms": [0-9.e-]+, "data_ms": [0-9.e-]+, ' e/metrics.jsonl
check "of which step_ms is the larger" python3 -c '
import json
for line in open("e/metrics.jsonl"):
    m = json.loads(line)
    assert "eval_loss" in m or 0 <= m["data_ms"] <= m["step_ms"], m'

# Tokens, where inputs are whole numbers [batch, T].
data tokens.safetensors idx=I64:8x16:mod61 targets=I64:8x16:mod61
works "a language model" "$weft" train "$refs/gpt_tiny_adamw/model.pt2" --data tokens.safetensors --steps 3 --log-every 1 --threads 1
check "its parts, outermost" sh -c 'grep -A 4 "^model" err | tail -n 4 | tr -s " " | cut -d " " -f 2 | tr "\n" " " | grep -qx "wte wpe b ln_f "'
check "counts tokens" grep -qE '^step 3/3 .* [0-9,.]+ tok/s ' err

# On a terminal the line is rewritten and fits; NO_COLOR, TERM=dumb and pipes get plain lines.
works "on a terminal" env TERM=xterm python3 "$source/tests/e2e/terminal.py" 60 "$weft" train "$mlp" --data good.safetensors \
    --batch-size 8 --threads 1 --steps 20000 --no-tensorboard
check "the line is rewritten" python3 -c '
text = open("out", newline="").read()
parts = text.split("\r\x1b[K")
assert len(parts) > 2, len(parts)
lines = [p.split("\r")[0].split("\n")[0] for p in parts[1:]]
assert all(len(line) < 60 for line in lines), max(lines, key=len)
assert all(line.startswith(("step ", "compiling: ")) or not line for line in lines), lines
assert "step 20000/20000" in lines[-1], lines[-1]
assert len(parts) < 100, len(parts)'
for plain in NO_COLOR=1 TERM=dumb; do
    works "$plain" env TERM=xterm "$plain" python3 "$source/tests/e2e/terminal.py" 40 "$weft" train "$mlp" --data good.safetensors \
        --batch-size 8 --threads 1 --steps 20
    check "$plain: plain lines" sh -c '! grep -q "$(printf "\033")" out && [ "$(grep -c "^step [12]0/20 " out)" -eq 2 ]'
done

# Event files for TensorBoard: the values of metrics.jsonl.
works "a run with checkpoints" train --steps 10 --checkpoint-every 5 --eval-data good.safetensors --out tb
check "decodes" sh -c "python3 '$source/tests/e2e/events.py' tb/events.out.tfevents.*.0 >values"
check "version first" test "$(head -1 values)" = "version brain.Event:2"
check "values of the steps" python3 -c '
import json, struct
lines = [json.loads(line) for line in open("tb/metrics.jsonl")]
steps = {m["step"]: m for m in lines if "loss" in m}
evals = {m["step"]: m for m in lines if "eval_loss" in m}
names = {"train/loss": "loss", "train/lr": "lr", "train/grad_norm": "grad_norm", "perf/step_ms": "step_ms", "perf/data_ms": "data_ms", "mem/rss_mb": "rss_mb"}
seen = set()
for line in open("values").read().splitlines()[1:]:
    step, tag, value = line.split()
    want = (evals[int(step)][{"eval/loss": "eval_loss", "eval/accuracy": "eval_accuracy"}[tag]] if tag.startswith("eval/") else steps[int(step)][names[tag]])
    assert struct.pack("f", float(value)) == struct.pack("f", want), (line, want)
    seen.add((int(step), tag))
assert {(1, "train/loss"), (10, "train/loss"), (5, "eval/loss"), (10, "eval/accuracy")} <= seen, seen'
works "it goes on" train --steps 12 --checkpoint-every 5 --resume tb
check "in a file of its own, which says from where" sh -c "[ \$(ls tb/events.* | wc -l) -eq 2 ] &&
    for f in tb/events.*; do python3 '$source/tests/e2e/events.py' \$f; done | grep -q '^start 11$'"
works "without" train --steps 2 --no-tensorboard --out no
check "no event file" sh -c '! ls no/events.* 2>/dev/null'
check "names neither host nor folder in the weights" sh -c '! grep -qF -e "$(uname -n)" -e "$PWD" tb/final.safetensors'

# Logs of ranks.
works "two ranks" "$weft" train "$mlp" --data good.safetensors --batch-size 8 --threads 1 --nproc 2 --steps 4 --log-every 2 --out two
check "the first one's log has its lines" sh -c 'grep -q "^step 4/4 " two/rank-0.log && grep -q "^model      580" two/rank-0.log'
check "as the person saw them" bash -c 'grep -v "^warning" err | tail -3 | cmp - <(grep -v "^warning" two/rank-0.log | tail -3)' 
check "and the other has one" test -f two/rank-1.log
data bad.safetensors x=F32:40x12:rand y=I64:40:mod4,0=9
"$weft" train "$mlp" --data bad.safetensors --batch-size 8 --threads 1 --nproc 2 --steps 40 --out wrong >out 2>err </dev/null
check "an error of a rank: one message" test "$(grep -cE '^error\[W[0-9]+\]: rank [01] .*input y: sample [0-9]+ of .* holds 9; 0 to 3 are allowed' err)" -eq 1

# Several outputs: which one the loss is of.
works "a loss of the model's own" train --steps 1
check "is named" grep -qE '^loss       is output 0 of 2$' err
works "a loss of another output" train --loss cross_entropy --predictions 1 --steps 1
check "is named, too" grep -qE '^loss       cross_entropy of output 1 of 2, f32\[\*, 4\]$' err
fails "an output that is not there" 2 "the model has no output 7" train --loss cross_entropy --predictions 7 --steps 1

# info, plan, doctor.
works "info" "$weft" info "$mlp"
check "parameters by module" sh -c 'grep -qE "^module     a +384 parameters$" out && grep -qE "^module     o +132 parameters$" out'
check "parameters" grep -q '^parameters 0.001 M, 0.001 M of them trainable$' out
check "coverage" grep -qE '^operators  ([0-9]+) of \1 kinds are supported$' out
check "dynamic dimensions" grep -qE '^dynamic    s17 +2 to 64$' out
works "info of a linear model" "$weft" info "$refs/linreg_sgd/model.pt2"
check "its FLOPs" grep -qE '^forward    0.000 MFLOP' out
works "info of LeNet" "$weft" info "$refs/lenet_sgd_nesterov/model.pt2"
check "FLOPs of a step: about three times those of forward" python3 -c '
import re
text = open("out").read()
f, s = (float(re.search(k + r" +([0-9.]+) MFLOP", text)[1]) for k in ("forward", "step"))
assert f > 1 and 2.3 < s / f < 3.01, (f, s)'
works "plan" "$weft" plan "$refs/lenet_sgd_nesterov/model.pt2" --optimizer sgd --momentum 0.9
check "by module" grep -qE '^module +parameters +trainable +weights, MB +state, MB +activations, MB$' out
check "activations are those at the peak" python3 -c '
import re
text = open("out").read()
at_peak = float(re.search(r"at the peak, ([0-9.]+) MB are alive", text)[1])
table = text[text.index("\nmodule "):].splitlines()[2:]
rows = [float(l.split()[-1]) for l in table if not l.endswith("MB")]
assert len(rows) > 4 and sum(r > 0 for r in rows) >= 2 and abs(sum(rows) - at_peak) < 0.001 * len(rows), (rows, at_peak)'
check "no line is longer than a screen is wide" test "$(awk 'length > m { m = length } END { print m }' out)" -le 140
check "by time and by line" sh -c 'grep -qE "^  predicted [0-9.]+ ms, of which$" out && grep -qE "^  at the peak, [0-9.]+ MB are alive" out'
works "doctor" "$weft" doctor
check "every line has a verdict" sh -c '[ "$(wc -l <out)" -ge 10 ] && ! grep -vE "^(ok|warn) " out'
"$weft" doctor --cache-dir /proc/nothing >out 2>err </dev/null
check "a cache that cannot be written is a warning" grep -qE '^warn  cache ' out
WEFT_CC=/nowhere/cc "$weft" doctor >out 2>err </dev/null
check "no compiler: exit code 1" sh -c "[ $? -eq 1 ] && grep -qE '^fail  compiler ' out"

# explain, completions, pages.
works "explain lists all codes" "$weft" explain
check "in order, each once" sh -c 'cut -d" " -f1 out | sort -uc && [ "$(wc -l <out)" -gt 100 ]'
for code in $(cut -d' ' -f1 out); do "$weft" explain "$code" >text 2>err && [ "$(wc -l <text)" -ge 3 ] || say 1 "explain $code"; done
works "explain by number" "$weft" explain 254 w0101
check "two texts" test "$(grep -cE '^W0(254|101): ' out)" -eq 2
for shell in bash zsh fish; do works "completion $shell" "$weft" completion $shell; cp out weft.$shell; done
check "bash completes" bash -c '
source weft.bash
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; echo "${COMPREPLY[*]}"; }
[ "$(try weft tr)" = train ] && [ "$(try weft train --optimizer ad)" = "adam adamw adagrad" ] &&
    [ "$(try weft train --optimizer = rm)" = rmsprop ] && [ "$(try weft train --batch)" = --batch-size ] &&
    [ "$(try weft train --no-shu)" = --no-shuffle ] && [ "$(try weft train --config run.y)" = run.yaml ] && [ -z "$(try weft env --lr)" ]'
for shell in zsh fish; do command -v $shell >/dev/null && check "$shell reads its own" $shell -n weft.$shell; done
works "man pages" "$weft" docs made
check "one for each verb" test "$(ls made/man1 | wc -l)" -eq $(($(ls made/verbs | wc -l) + 1))
check "all begin as man pages do" sh -c 'for f in made/man1/*; do head -2 "$f" | tr "\n" " " | grep -qE "^\.TH WEFT.* 1 .* \.SH NAME" || exit 1; done'
check "with every option of train" python3 -c '
import re
page, man = open("made/verbs/train.md").read(), open("made/man1/weft-train.1").read()
options = re.findall(r"^\| `--([a-z-]+)", page, re.M)
assert len(options) > 70, options
assert all(r"\fB\-\-" + o.replace("-", r"\-") + r"\fR" in man for o in options)'
if command -v groff >/dev/null; then check "that groff takes" sh -c '! groff -man -Tascii -ww made/man1/*.1 2>&1 >/dev/null | grep .'; fi
end
