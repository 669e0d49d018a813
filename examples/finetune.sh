#!/bin/bash
# Fine-tuning: weights that learned one text learn another, with the embeddings frozen, and the same from the export's own weights
# for comparison.   usage: examples/finetune.sh MODEL.pt2 WEIGHTS.safetensors TEXT OUT   (MODEL: an export of examples/gpt.py)
set -euo pipefail
weft=${WEFT:-build/weft} model=$1 weights=$2 text=$3 out=$4 steps=${STEPS:-100}
flags=(--data "x,y=$text" --batch-size 8 --steps "$steps" --optimizer adamw --lr 1e-3 --log-every 50)
set -x
"$weft" train "$model" --weights "$weights" --param-group 'token.*:lr=0' --param-group 'place.*:lr=0' "${flags[@]}" --out "$out/tuned"
"$weft" train "$model" "${flags[@]}" --out "$out/fresh"
{ set +x; } 2>/dev/null
for run in tuned fresh; do
    sed -n 's/.*"loss": \([0-9.e+-]*\),.*/\1/p' "$out/$run/metrics.jsonl" | tail -20 |
        awk -v run=$run '{ s += $1; n++ } END { printf "%s: mean loss of the last %d steps %.3f\n", run, n, s / n }'
done
