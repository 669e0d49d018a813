#!/bin/bash
# The examples of a table and of fine-tuning (those of pictures and of text: demo.sh, sample.sh).
source "$(dirname "$0")/common.sh"
export WEFT=$weft SOURCE=$source
works "houses" "$source/examples/houses.sh" "$folder/houses"
mse=$(sed -n 's/^mse *//p' out)
# 144 is the noise that the prices were made with; 400 samples know it to 7 %, and the test is not to hang on a step's rounding
check "mean squared error below 175, is $mse" awk -v x="$mse" 'BEGIN { exit !(x > 100 && x < 175) }'
check "400 prices" python3 - <<'P'
import csv, os
from tensors import read, values
prices = read("houses/prices.safetensors")["predictions"]
assert prices[1] == [400, 1], prices[1]
rows = csv.DictReader(open(os.environ["SOURCE"] + "/examples/houses_test.csv"))
error = sum((p - float(r["price"]) / 1000) ** 2 for p, r in zip(values(prices), rows)) / 400
assert 100 < error < 175, error
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
from tensors import read
a, b = read("gpl/final.safetensors"), read("fine/tuned/final.safetensors")
same = {k for k in a if a[k] == b[k]}
assert {"token.weight", "place.weight", "head.weight"} == same, same
P
else
    echo "# no $licenses here: fine-tuning was not run"
fi
end
