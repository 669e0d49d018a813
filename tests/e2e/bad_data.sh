#!/bin/bash
# Wrong data: each is one clear error that names the input, what was found and what was expected.
source "$(dirname "$0")/common.sh"
train() { "$weft" train "$mlp" --steps 3 --batch-size 8 --threads 1 "$@"; }
bad() { # NAME CODE TEXT SPEC...
    local name=$1 code=$2 text=$3
    shift 3
    data bad.safetensors "$@"
    fails "$name" "$code" "$text" train --data bad.safetensors
}

works "good data train" train --data good.safetensors
bad "a wrong shape" 1 "input x expects f32[*, 12], but the file holds f32[40, 13]" x=F32:40x13:rand y=I64:40:mod4
bad "a wrong rank" 1 "but the file holds f32[40, 3, 4]" x=F32:40x3x4:rand y=I64:40:mod4
bad "a wrong dtype" 1 "input x expects f32[*, 12], but the file holds f64[40, 12]" x=F64:40x12:rand y=I64:40:mod4
bad "a wrong name" 1 "input y has no data; the files hold x, labels" x=F32:40x12:rand labels=I64:40:mod4
bad "rows that do not match" 1 "input y has 39 samples, but input x has 40" x=F32:40x12:rand y=I64:39:mod4
bad "too few rows" 1 "4 samples do not fill one batch of 8" x=F32:4x12:rand y=I64:4:mod4
fails "a missing file" 1 "none.safetensors: cannot open: No such file or directory" train --data none.safetensors
fails "an input that does not exist" 1 "the model has no input z; its inputs are x, y" train --data z=good.safetensors
fails "no data at all" 2 "--data" train
head -c 200 good.safetensors >short.safetensors
fails "a truncated file" 1 "short.safetensors" train --data short.safetensors
echo hello >text.safetensors
fails "a text file" 1 "text.safetensors" train --data text.safetensors
: >empty.safetensors
fails "an empty file" 1 "empty.safetensors" train --data empty.safetensors

# A label out of range: the value, and the line of the model that reads it. Nothing is left half-written.
data label.safetensors x=F32:40x12:rand y=I64:40:mod4,0=99,1=99,2=99,3=99,4=99,5=99,6=99,7=99,20=99
fails "a label out of range" 1 "input y: sample 0 of label.safetensors (counted from 0) holds 99; 0 to 3 are allowed" train --data label.safetensors --no-shuffle --out bad
check "it names the Python line" grep -qE '\.py:[0-9]+' err
check "no weights are left" test ! -e bad/final.safetensors
check "a run without a step leaves no metrics" test ! -e bad/metrics.jsonl
works "and its folder can be used" train --data good.safetensors --out bad
rm -r bad
data label.safetensors x=F32:40x12:rand y=I64:40:mod4,3=-7
fails "a negative label" 1 "input y: sample 3 of label.safetensors (counted from 0) holds -7; 0 to 3 are allowed" train --data label.safetensors --no-shuffle
check "it names the Python line, too" grep -qE '\.py:[0-9]+' err

# Found later, the last good step is kept: the bytes of a run that ends there. Of several files the right one is named.
data label.safetensors x=F32:24x12:rand y=I64:24:mod4,5=4
late() { "$weft" train "$mlp" --data good.safetensors --data label.safetensors --batch-size 4 --no-shuffle --threads 1 "$@"; }
fails "a wrong label in the second file" 1 "input y: sample 5 of label.safetensors (counted from 0) holds 4; 0 to 3 are allowed" \
    late --out late --checkpoint-every 3
check "and where the weights are" grep -qF "stopped after step 11; weights are in late/final.safetensors; --resume goes on" err
works "a run that ends before it" late --steps 11 --out before
check "has these weights" cmp late/final.safetensors before/final.safetensors
check "and there is a checkpoint of it" test -f late/checkpoints/step-11/MANIFEST
fails "on two ranks" 1 "input y: sample 5 of label.safetensors (counted from 0) holds 4; 0 to 3 are allowed" late --nproc 2 --out late2
check "the first rank keeps the weights" grep -qF "stopped after step 5; weights are in late2/final.safetensors" err
works "two ranks that end before it" late --nproc 2 --steps 5 --out before2
check "have these weights" cmp late2/final.safetensors before2/final.safetensors
fails "in the evaluation data" 1 "input y: sample 5 of label.safetensors (counted from 0) holds 4" \
    train --data good.safetensors --eval-data label.safetensors --out lateeval
check "after an epoch" grep -qF "stopped after step 3; weights are in lateeval/final.safetensors" err
fails "of weft eval" 1 "input y: sample 5 of label.safetensors (counted from 0) holds 4" "$weft" eval "$mlp" --data label.safetensors
data tokens.safetensors idx=I64:8x16:mod61,40=64 targets=I64:8x16:mod61
fails "a token beyond the vocabulary" 1 "input idx: sample 2 of tokens.safetensors (counted from 0) holds 64; 0 to 60 are allowed" \
    "$weft" train "$refs/gpt_tiny_adamw/model.pt2" --data tokens.safetensors --no-shuffle
fails "also when predicting" 1 "input idx: sample 2 of tokens.safetensors (counted from 0) holds 64; 0 to 60 are allowed" \
    "$weft" run "$refs/gpt_tiny_adamw/model.pt2" --data tokens.safetensors --out p.safetensors

# NaN in data and in the step.
data nan.safetensors x=F32:40x12:rand,100=nan y=I64:40:mod4
fails "NaN in data under --check-finite" 1 "input x: sample 8, element 4 is nan" train --check-finite --data nan.safetensors
fails "NaN in the evaluation data" 1 "input x: sample 8, element 4 is nan" train --check-finite --data good.safetensors \
    --eval-data nan.safetensors --out naneval
check "is found before anything is written" test ! -e naneval
data huge.safetensors x=F32:16x4:rand y=F32:16x1:rand
fails "the first node with NaN in the step" 1 "is the first whose result is not finite" \
    "$weft" train "$refs/linreg_sgd/model.pt2" --optimizer sgd --lr 1e30 --steps 20 --check-finite --data huge.safetensors
check "it names the Python line, once more" grep -qE '\.py:[0-9]+' err
end
