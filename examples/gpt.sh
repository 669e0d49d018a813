#!/bin/bash
# Trains the byte-level GPT of examples/gpt.py (10.8 M parameters) on the King James Bible, which the Debian package bible-kjv
# prints, and lets it speak.   usage: examples/gpt.sh [OUT]
#   MODEL=FILE   an export of examples/gpt.py (default: gpt.pt2 in OUT's folder, exported if `python3` has torch)
#   TEXT=FILE    another text          STEPS=N   fewer steps          FLAGS="..."   more options of weft train
set -euo pipefail
cd "$(dirname "$0")/.."
weft=${WEFT:-build/weft}
out=${1:-build/gpt}
model=${MODEL:-$(dirname "$out")/gpt.pt2} text=${TEXT:-$(dirname "$out")/kjv.txt} steps=${STEPS:-3000}
for given in "${MODEL:-}" "${TEXT:-}"; do
    [ -z "$given" ] || [ -f "$given" ] || { echo "gpt: no file $given" >&2; exit 1; }
done
if [ ! -f "$model" ]; then
    ${PYTHON:-python3} examples/gpt.py "$model" || {
        echo "gpt: no $model; examples/gpt.py writes it where torch is installed: pip install torch" >&2
        exit 1
    }
fi
if [ ! -f "$text" ]; then
    command -v bible >/dev/null || {
        echo "gpt: no text; apt-get install bible-kjv, or set TEXT to a text of a megabyte or more" >&2
        exit 1
    }
    bible -f gen1:1-rev22:21 >"$text"
fi
set -x
"$weft" train "$model" --data "x,y=$text" --optimizer adamw --lr 1e-3 --betas 0.9,0.95 --weight-decay 0.1 --clip-norm 1 \
    --schedule cosine --warmup-steps $((steps / 30 + 1)) --min-lr 1e-4 --steps "$steps" --log-every 50 --out "$out" ${FLAGS:-}
"$weft" run "$model" --weights "$out/final.safetensors" --prompt "And God said" --sample 400 --temperature 0.8
{ set +x; } 2>/dev/null
tail -100 "$out/metrics.jsonl" | sed -n 's/.*"loss": \([0-9.e+-]*\),.*/\1/p' |
    awk '{ s += $1; n++ } END { printf "training loss, mean of the last %d steps: %.3f nats per byte\n", n, s / n }'
