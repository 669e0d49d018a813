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
fails "processes" 2 "option nproc is not available yet" train --nproc 2
fails "checkpoints" 2 "option checkpoint-every is not available yet" train --checkpoint-every 10
fails "resuming" 2 "option resume is not available yet" train --resume run
fails "no model" 2 "name a model" "$weft" train --data good.safetensors
fails "a pass that does not exist" 2 "no pass is called fuse/grp" "$weft" graph "$mlp" --after fuse/grp
fails "a group without a match" 2 "param-group" train --param-group "nonsense"
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
fails "a folder below a file" 1 "file" train --out file/run
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked
    chmod 555 locked
    fails "a folder that may not be written" 1 "locked" train --out locked/run
fi
end
