#!/bin/bash
# The examples of a table and of fine-tuning (those of pictures and of text: demo.sh, sample.sh).
source "$(dirname "$0")/common.sh"
export WEFT=$weft SOURCE=$source
works "houses" "$source/examples/houses.sh" "$folder/houses"
mse=$(sed -n 's/^mse *//p' out)
# 144 is the noise that the prices were made with; 400 samples know it to 7 %, and the test is not to hang on a step's rounding
check "mean squared error below 175, is $mse" awk -v x="$mse" 'BEGIN { exit !(x > 100 && x < 175) }'
check "400 prices" python3 - <<'P'
import csv, json, struct
raw = open("houses/prices.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
t = json.loads(raw[8:8 + n])["predictions"]
assert t["shape"] == [400, 1], t
v = struct.unpack("<400f", raw[8 + n:])
rows = list(csv.DictReader(open("%s/examples/houses_test.csv" % __import__("os").environ["SOURCE"])))
worst = sum((p - float(r["price"]) / 1000) ** 2 for p, r in zip(v, rows)) / 400
assert 100 < worst < 175, worst
P
licenses=/usr/share/common-licenses
if [ -f $licenses/GPL-2 ] && [ -f $licenses/Apache-2.0 ]; then
    cp $licenses/GPL-2 gpl.txt
    cp $licenses/Apache-2.0 apache.txt
    gpt=$source/examples/gpt_tiny.pt2
    works "a text to begin with" "$weft" train "$gpt" --data x,y=gpl.txt --batch-size 16 --steps 600 --lr 1e-2 --schedule cosine --out gpl
    works "fine-tuning" "$source/examples/finetune.sh" "$gpt" gpl/final.safetensors apache.txt "$folder/fine"
    check "beats beginning anew by half a nat" awk '/^tuned: / { t = $NF } /^fresh: / { f = $NF } END { exit !(t > 0 && f - t > 0.5) }' out
    check "frozen weights did not move" python3 - <<'P'
import json, struct
def tensors(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    return {k: raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}
a, b = tensors("gpl/final.safetensors"), tensors("fine/tuned/final.safetensors")
same = {k for k in a if a[k] == b[k]}
assert {"token.weight", "place.weight", "head.weight"} == same, same
P
else
    echo "# no $licenses here: fine-tuning was not run"
fi
end
