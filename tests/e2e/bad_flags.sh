#!/bin/bash
# Absurd flags and folders: wrong usage is exit code 2 and one error, before anything is written.
source "$(dirname "$0")/common.sh"
train() { "$weft" train "$mlp" --data good.safetensors --steps 3 --batch-size 8 --threads 1 "$@"; }

fails "no verb of that name" 2 "weft has no verb 'trian'" "$weft" trian
fails "an unknown option" 2 "unknown option \"lrr\"" train --lrr 3
fails "no number" 2 "option lr: \"fast\" is not a number" train --lr fast
fails "a negative rate" 2 "option lr: -1 is out of range" train --lr=-1
fails "no threads" 2 "option threads: 0 is out of range" train --threads 0
fails "a batch beyond what the export allows" 2 "--batch-size 1000: the export allows 2 to 64" train --batch-size 1000
fails "steps and epochs" 2 "options steps and epochs are both given" train --epochs 3
fails "momentum for adamw" 2 "option momentum has no meaning for optimizer adamw" train --momentum 0.9
fails "an unknown loss" 2 "\"magic\" is not one of" train --loss magic
fails "processes without a number" 2 "nproc" train --nproc two
fails "no model" 2 "name a model" "$weft" train --data good.safetensors
fails "nothing at all" 2 "name a model" "$weft" train
fails "a pass that does not exist" 2 "no pass is called fuse/grp" "$weft" graph "$mlp" --after fuse/grp
fails "a group without a match" 2 "param-group" train --param-group "nonsense"
fails "a misspelt group" 2 "option param-group: *.wieght matches no trainable parameter" train --param-group "*.wieght:lr=1"
check "names the parameters" grep -q "The trainable parameters are a.weight, n.weight" err
fails "a second model" 2 "there is also extra.pt2" train extra.pt2
fails "a plan for a batch beyond the export" 2 "--batch-size 65: the export allows 2 to 64" "$weft" plan "$mlp" --batch-size 65
fails "a loss on top of a loss" 2 "--loss" train --loss cross_entropy
works "help says how" "$weft" train --help
check "help starts with an example" sh -c 'head -1 out | grep -q "^  weft train "'
works "the version" "$weft" --version

# Where results go.
mkdir full empty
touch full/final.safetensors
fails "a folder that holds a run" 2 "already holds a run" train --out full
works "an empty folder is fine" train --out empty
check "with weights in it" test -s empty/final.safetensors
touch file
fails "a file instead of a folder" 2 "is a file; name a folder" train --out file
fails "also before anything is compiled" 2 "already holds a run" train --out full --cache-dir untouched
check "indeed" test ! -e untouched
fails "and on several ranks" 2 "already holds a run" train --out full --nproc 2 --cache-dir untouched
check "indeed, too" test ! -e untouched
fails "a folder below a file" 1 "file" train --out file/run
# Also as root: a device that is full, and folders that nobody can make.
to_full() { "$@" >/dev/full; }
fails "a full device" 1 "No space left on device" "$weft" compile "$mlp" -o /dev/full
check "stays a device" test -c /dev/full
for verb in ops env "info $mlp" "graph $mlp --eval" "verify $refs/linreg_sgd --json" --version; do
    # shellcheck disable=SC2086
    fails "a full device for the results of ${verb%% *}" 1 "stdout: cannot write all results: No space left" \
        to_full "$weft" $verb
done
check "a reader that leaves is no failure" bash -c 'set -o pipefail; "$0" ops | head -1' "$weft"
fails "a folder in /proc" 1 "cannot create the folder" train --out /proc/weft
fails "a folder that is not there" 1 "there is no folder nowhere/" "$weft" compile "$mlp" -o nowhere/step.weft
fails "a folder as the file" 2 "full is a folder" "$weft" run "$mlp" --data good.safetensors --batch-size 8 --out full
check "stays as it was" test "$(ls full)" = final.safetensors
limited() { (ulimit -f 400; "$@"); }
fails "a limit on file sizes" 1 "metrics.jsonl cannot be written: File too large" limited "$weft" train "$mlp" \
    --data good.safetensors --steps 10000 --batch-size 8 --threads 1 --out limited
check "leaves no weights" test ! -e limited/final.safetensors
works "dumps of a step" train --dump-dir d1
works "that is in the cache by now" train --dump-dir d2
check "are the same" diff -r d1 d2
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked
    chmod 555 locked
    fails "a folder that may not be written" 1 "locked" train --out locked/run
fi
end
