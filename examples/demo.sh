#!/bin/bash
# Trains the network of examples/fashion.py on Fashion-MNIST and says what came out. `make demo` runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
weft=${WEFT:-build/weft}
out=${1:-build/demo}
data=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}
if [ ! -f "$data/train-images-idx3-ubyte.gz" ]; then
    echo "demo: no Fashion-MNIST in $data; the Debian package dataset-fashion-mnist has it," >&2
    echo "or set FASHION_MNIST to the folder with train-images-idx3-ubyte.gz and its three companions." >&2
    exit 1
fi
rm -rf "$out"
set -x
"$weft" train examples/fashion.pt2 --loss cross_entropy \
    --data "x=$data/train-images-idx3-ubyte.gz" --data "y=$data/train-labels-idx1-ubyte.gz" \
    --eval-data "x=$data/t10k-images-idx3-ubyte.gz" --eval-data "y=$data/t10k-labels-idx1-ubyte.gz" \
    --optimizer adamw --lr 3e-3 --schedule cosine --warmup-steps 100 --epochs "${EPOCHS:-6}" \
    --log-every 100 --out "$out"
{ set +x; } 2>/dev/null
# The last evaluation stands at the end of the metrics.
accuracy=$(sed -n 's/.*"eval_accuracy": *\([0-9.eE+-]*\).*/\1/p' "$out/metrics.jsonl" | tail -1)
echo
echo "weights:  $out/final.safetensors   (torch: load_state_dict(safetensors.torch.load_file(...)))"
echo "metrics:  $out/metrics.jsonl"
echo "next:     $weft graph examples/fashion.pt2        the graph as text"
echo "          $weft train --help                      train your own: torch.export.save(torch.export.export(m, batch), ...)"
awk -v a="$accuracy" 'BEGIN { printf "test accuracy: %.1f %%\n", 100 * a }'
