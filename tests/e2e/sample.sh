#!/bin/bash
# The example of a byte-level GPT in its shortest form: it learns a text, speaks the same bytes for the same seed, and at
# temperature 0 says what its own predictions rank first; whatever is not a model of bytes is refused.
source "$(dirname "$0")/common.sh"
gpt=$source/examples/gpt_tiny.pt2
# 30 kB in which every letter follows from those before it: a model of bytes must get far below log 256 = 5.5.
python3 -c "
with open('text.txt', 'w') as f:
    for i in range(1000): f.write('the %s is %s.\n' % (('sun', 'moon', 'sea')[i % 3], ('hot', 'cold', 'deep')[i % 3]))"
WEFT=$weft MODEL=$gpt TEXT=$folder/none.txt "$source/examples/gpt.sh" "$folder/run" >out 2>err </dev/null
check "a text that is not there is an error, and no file is put in its place" test $? -eq 1 -a ! -e none.txt
WEFT=$weft MODEL=$gpt TEXT=$folder/text.txt STEPS=600 FLAGS="--batch-size 16 --lr 1e-2" works "train and sample" "$source/examples/gpt.sh" "$folder/run"
loss=$(sed -n 's/^training loss, .*: \([0-9.]*\) nats per byte$/\1/p' out)
check "the mean loss of the last steps is below 0.5, is $loss" awk -v x="$loss" 'BEGIN { exit !(x > 0 && x < 0.5) }'
sample() { works "$1" "$weft" run "$gpt" --weights run/final.safetensors "${@:2}"; }
sample "a sample" --prompt "the sun" --sample 200 --seed 3
cp out first
check "the prompt comes first" grep -q "^the sun" out
check "and as many bytes as asked for" test "$(wc -c <out)" -eq 208
sample "again" --prompt "the sun" --sample 200 --seed 3
check "the same" cmp out first
sample "shorter" --prompt "the sun" --sample 50 --seed 3
check "begins alike" cmp -n 57 out first
sample "another seed" --prompt "the sun" --sample 200 --seed 4 --temperature 2
check "differs" sh -c '! cmp -s out first'
sample "no prompt" --sample 9 --temperature 0

# The likeliest byte by the predictions themselves: three places of the window, and beyond it.
prompt="the moon is"
sample "the likeliest bytes" --prompt "$prompt" --sample 30 --temperature 0
cp out spoken
python3 - "$prompt" <<'P'
import struct, sys
from tensors import write
text = open("spoken", "rb").read()
windows = [text[max(0, n - 32):n] for n in (len(sys.argv[1]), 25, 32, 38)]
write("windows.safetensors", {"x": ("I64", [4, 32], b"".join(struct.pack("<32q", *(w + bytes(32 - len(w)))) for w in windows))}, align=1)
P
works "their windows' predictions" "$weft" run "$gpt" --weights run/final.safetensors --data windows.safetensors --out scores.safetensors
check "agree" python3 - "$prompt" <<'P'
import sys
from tensors import read, values
text, scores = open("spoken", "rb").read(), read("scores.safetensors")["predictions"]
assert scores[1] == [4 * 32, 256], scores[1]
v = values(scores)
for row, at in enumerate((len(sys.argv[1]), 25, 32, 38)):
    place = row * 32 + min(at, 32) - 1
    s = v[place * 256:place * 256 + 256]
    assert s.index(max(s)) == text[at], (row, s.index(max(s)), text[at])
P
sample "the likeliest alone" --prompt "$prompt" --sample 30 --top-k 1 --seed 9
check "is temperature 0" cmp out spoken

fails "not text" 2 "input x is not text" "$weft" run "$source/examples/fashion.pt2" --sample 4
fails "a sample of data" 2 "leave --data and --out away" "$weft" run "$gpt" --sample 4 --data text.txt
fails "a sample of nothing" 2 "sample" "$weft" run "$gpt" --sample 0
fails "a temperature below 0" 2 "temperature" "$weft" run "$gpt" --sample 4 --temperature -1
end
