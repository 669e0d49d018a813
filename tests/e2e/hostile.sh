#!/bin/bash
# Hostile files: see hostile.py.
source "$(dirname "$0")/common.sh"
rm -f good.safetensors
python3 "$source/tests/e2e/hostile.py" "$source" "$weft"
