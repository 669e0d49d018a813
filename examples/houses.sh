#!/bin/bash
# Regression on a table: trains examples/houses.pt2 on 1600 made-up sales, evaluates it on 400 others, and predicts prices.
#   usage: examples/houses.sh [OUT]
set -euo pipefail
cd "$(dirname "$0")/.."
weft=${WEFT:-build/weft} out=${1:-build/houses}
rm -rf "$out"
set -x
"$weft" train examples/houses.pt2 --loss mse --data x,town,y=examples/houses.csv --recipe examples/houses.yaml \
    --eval-data x,town,y=examples/houses_test.csv --metrics mse,mae --best-metric mae --early-stop 12 \
    --optimizer adamw --lr 1e-2 --schedule cosine --warmup-steps 20 --epochs 30 --log-every 500 --out "$out"
"$weft" eval examples/houses.pt2 --loss mse --weights "$out/best.safetensors" --data x,town,y=examples/houses_test.csv \
    --recipe examples/houses.yaml --metrics mse,mae
"$weft" run examples/houses.pt2 --weights "$out/best.safetensors" --data x,town=examples/houses_test.csv \
    --recipe examples/houses.yaml --out "$out/prices.safetensors"
{ set +x; } 2>/dev/null
echo "the sales were made up with a noise of 12 thousand: a mean squared error of 144 is the best that can be had"
