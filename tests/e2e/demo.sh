#!/bin/bash
# The demo, one epoch instead of six: it must end with its accuracy line, above what an untrained network could reach,
# and leave weights and metrics.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
EPOCHS=1 "$source/examples/demo.sh" "$folder/run" | tee "$folder/out"
tail -1 "$folder/out" | grep -qE '^test accuracy: (8[2-9]|9[0-9])\.[0-9] %$'
test -s "$folder/run/final.safetensors"
test -s "$folder/run/metrics.jsonl"
