#!/bin/bash
# Checkpoints: a resumed run is the uninterrupted one bit for bit (other thread counts, dropout, batch statistics, Adam,
# two ranks); a run that was killed goes on; damaged checkpoints are left out, with the reason; what does not fit is refused.
source "$(dirname "$0")/common.sh"
opts=(--batch-size 8 --optimizer adamw --schedule cosine --lr 0.01 --eval-data good.safetensors)
train() { "$weft" train "$mlp" --data good.safetensors "${opts[@]}" "$@"; }
same() { cmp "$1/final.safetensors" "$2/final.safetensors" && cmp "$1/best.safetensors" "$2/best.safetensors" && same_metrics "$1" "$2"; }
same_metrics() { diff <(without_times "$1") <(without_times "$2"); }
# Two runs' shards, but for their names and the sum over these.
same_shard() { cmp <(head -c -8 "$1" | sed 's/"job": "[0-9a-f]*"//') <(head -c -8 "$2" | sed 's/"job": "[0-9a-f]*"//'); }
without_times() { sed -E 's/, "(step_ms|data_ms|rss_mb|start_to_step_s)": [^,}]*//g' "$1/metrics.jsonl"; }

works "uninterrupted" train --epochs 4 --threads 1 --out whole
works "with checkpoints" train --epochs 4 --threads 1 --checkpoint-every 3 --out ck
check "they change nothing" same whole ck
check "the newest three are kept" test "$(cd ck/checkpoints && echo *)" = "LATEST step-15 step-18 step-20"
check "LATEST names the newest" grep -qx step-20 ck/checkpoints/LATEST
works "a finished run can be resumed" train --epochs 4 --threads 1 --resume ck
check "which says so" grep -qF "after step 20: the run is finished" err
check "and changes nothing" same whole ck

# Every step in the middle: of an epoch, at its end, before its evaluation.
for stop in 4 5 7; do
    for threads in 1 2; do
        rm -rf part
        works "$stop steps, then stopped" train --steps $stop --total-steps 20 --threads 1 --checkpoint-every $stop --out part
        works "resumed with $threads threads" train --epochs 4 --total-steps 20 --threads $threads --resume part --checkpoint-every 6
        check "says from where" grep -qF "resumed from part after step $stop" err
        check "the uninterrupted run's weights" cmp whole/final.safetensors part/final.safetensors
    done
done
works "resumed into another folder" train --epochs 4 --threads 1 --resume part --out other
check "which gets the weights" cmp whole/final.safetensors other/final.safetensors

# Killed in the middle of a run: what it had not kept is done again.
data long.safetensors x=F32:4000x12:rand y=I64:4000:mod4
long() { "$weft" train "$mlp" --data long.safetensors --batch-size 8 --optimizer adamw --epochs 200 --threads 1 "$@"; }
works "a longer run" long --out lwhole
long --checkpoint-every 100 --out lkill >/dev/null 2>err &
for _ in $(seq 200); do [ -f lkill/checkpoints/LATEST ] && break; sleep 0.02; done
pkill -9 -P $! 2>/dev/null; kill -9 $! 2>/dev/null
wait $! 2>/dev/null
check "it was killed before its end" test ! -f lkill/final.safetensors
check "and left a checkpoint" test -f lkill/checkpoints/LATEST
# A kill may come while any file is written.
: >lkill/checkpoints/LATEST.tmp-1234-0
: >lkill/best.safetensors.tmp-1234-0
mkdir lkill/checkpoints/step-7.tmp.1234
: >lkill/checkpoints/step-7.tmp.1234/rank-0.wfck
works "goes on" long --checkpoint-every 1000 --resume lkill
check "the same bytes" cmp lwhole/final.safetensors lkill/final.safetensors
check "every step once in the metrics" test "$(grep -c '"loss"' lkill/metrics.jsonl)" -eq 100000
check "nothing unfinished is left" sh -c '! find lkill | grep tmp'

# Ctrl-C keeps the last whole step. Started by Python, since a shell's background jobs ignore SIGINT.
python3 - "$weft" "$mlp" >out 2>err <<'P'
import os, signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "train", sys.argv[2], "--data", "long.safetensors", "--batch-size", "8", "--optimizer",
                      "adamw", "--epochs", "200", "--threads", "1", "--checkpoint-every", "1000000", "--out", "lint"],
                     stderr=sys.stderr, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
for _ in range(600):
    time.sleep(0.02)
    if os.path.exists("lint/metrics.jsonl") and os.path.getsize("lint/metrics.jsonl") > 500:
        break
p.send_signal(signal.SIGINT)
sys.exit(p.wait(30))
P
say $(($? != 130)) "Ctrl-C ends with 130"
check "and says that it can go on" grep -qF -- "--resume goes on from there" err
works "which it can" long --resume lint
check "to the same bytes" cmp lwhole/final.safetensors lint/final.safetensors

# Dropout draws the random numbers of the step that it is at; batches are read ahead by a thread.
data drop.safetensors x=F32:1280x256:rand
drop() { "$weft" train "$refs/dropout_p01_statistical/model.pt2" --data drop.safetensors --epochs 2 --optimizer sgd --momentum 0.9 "$@"; }
works "dropout" drop --threads 2 --out dwhole
works "dropout, with a checkpoint" drop --threads 1 --checkpoint-every 13 --keep-checkpoints 9 --out dpart
rm -r dpart/checkpoints/step-[234]*
works "dropout, resumed" drop --threads 2 --resume dpart
check "from the middle" grep -qF "after step 13" err
check "the same bytes" cmp dwhole/final.safetensors dpart/final.safetensors

# Damage of the newest: left out with the reason, the one before is taken.
damage() { # NAME TEXT COMMAND...   ck2 is a fresh copy
    local name=$1 text=$2
    shift 2
    rm -rf ck2 && cp -r ck ck2
    (cd ck2/checkpoints/step-20 && "$@") >/dev/null 2>&1
    works "$name" train --epochs 4 --threads 2 --resume ck2
    check "$name: said" grep -qF "step-20 is left out: " err
    check "$name: why" grep -qF -- "$text" err
    check "$name: goes on" grep -qF "resumed from ck2 after step 18" err
    check "$name: the same bytes" cmp whole/final.safetensors ck2/final.safetensors
}
flip() { python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(int(sys.argv[2]), 2 if int(sys.argv[2]) < 0 else 0); b = f.read(1); f.seek(-1, 1); f.write(bytes([b[0] ^ 1]))' "$@"; }
damage "no MANIFEST" "MANIFEST: cannot open" rm MANIFEST
damage "half a MANIFEST" "MANIFEST: it" truncate -s 100 MANIFEST
damage "another byte in the MANIFEST" "MANIFEST: its checksum does not match" flip MANIFEST 20
damage "no file of the rank" "rank-0.wfck: cannot open" rm rank-0.wfck
damage "a truncated file" "rank-0.wfck: it has 700 bytes" truncate -s 700 rank-0.wfck
damage "another byte in the header" "the checksum of its header does not match" flip rank-0.wfck 60
damage "another byte in a tensor" "the checksum of tensor" flip rank-0.wfck -200
damage "an unfinished one" "MANIFEST: cannot open" sh -c 'rm *'

# Damage anywhere: the run always ends, with the same bytes, from the newest checkpoint that is whole.
cat >damage.py <<'P'
import random, shutil, subprocess, sys
weft, model, seed = sys.argv[1:4]
r = random.Random(int(seed))
print("seed", seed)
want = open("whole/final.safetensors", "rb").read()
for i in range(60):
    shutil.rmtree("ck3", ignore_errors=True)
    shutil.copytree("ck", "ck3")
    for k in range(r.randrange(1, 4)):
        path = "ck3/checkpoints/" + r.choice(["LATEST"] + [f"step-{n}/{f}" for n in (15, 18, 20) for f in ("MANIFEST", "rank-0.wfck")])
        data = bytearray(open(path, "rb").read())
        kind = r.randrange(4)
        if kind == 0:
            data = data[:r.randrange(len(data) + 1)]
        elif kind == 1 and data:
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
        elif kind == 2 and data:
            at = r.randrange(len(data))
            data[at:at + 8] = r.randbytes(8)
        else:
            data += r.randbytes(r.randrange(1, 100))
        open(path, "wb").write(data)
    done = subprocess.run([weft, "train", model, "--data", "good.safetensors", "--batch-size", "8", "--optimizer", "adamw",
                           "--schedule", "cosine", "--lr", "0.01", "--eval-data", "good.safetensors", "--epochs", "4",
                           "--threads", "1", "--resume", "ck3"], capture_output=True, text=True, timeout=60)
    if done.returncode or open("ck3/final.safetensors", "rb").read() != want:
        sys.exit(f"damage {i}: exit code {done.returncode}\n{done.stderr}")
P
check "damage anywhere" python3 damage.py "$weft" "$mlp" "${SEED:-1}"

works "no folder at all" train --epochs 1 --threads 1 --resume new
check "begins at step 0 and says so" grep -qF "new holds no checkpoint: starting at step 0" err
rm -rf ck2 && cp -r ck ck2 && rm ck2/checkpoints/step-*/MANIFEST
works "no checkpoint that is whole" train --epochs 4 --threads 1 --resume ck2
check "begins at step 0 and says so" grep -qF "ck2 holds no checkpoint: starting at step 0" err
check "the same bytes" cmp whole/final.safetensors ck2/final.safetensors

# Another run's file in a checkpoint, other data of the same size, another recipe, other options.
"$weft" train "$mlp" --data good.safetensors "${opts[@]}" --threads 1 --epochs 4 --checkpoint-every 5 --out twin >out 2>err </dev/null
damage "the file of a run with the same steps" "it is of another run (" cp "$folder/twin/checkpoints/step-20/rank-0.wfck" .
data as_many.safetensors x=F32:40x12:rand,7=5 y=I64:40:mod4
fails "other data, as many" 2 "the training data are other ones than the run began with, although as many" \
    "$weft" train "$mlp" --data as_many.safetensors "${opts[@]}" --epochs 4 --resume ck
check "says how to go on with them" grep -qF -- "begin a new run with its weights: --weights" err
echo 'x: {scale: 1}' >one.yaml
fails "another recipe" 2 "the recipe is another one" train --epochs 4 --recipe one.yaml --resume ck
rm -rf ck2 && cp -r ck ck2 && mv ck2 elsewhere
mkdir moved && cp good.safetensors moved/better.safetensors
works "the same data in another place" "$weft" train "$mlp" --data moved/better.safetensors "${opts[@]}" --threads 1 --epochs 5 --lr 0.5 \
    --resume elsewhere --out further
check "tells what changed" grep -qF "the run goes on with other options: lr was 0.01, now 0.5" err
check "and the schedule" grep -qF "the schedule was one of 20 steps and is now one of 25" err
works "nothing changed" train --epochs 4 --threads 1 --resume ck --out sameagain
check "nothing is told" sh -c '! grep -q "other options\|the schedule was" err'
check "the best weights come along" cmp ck/best.safetensors sameagain/best.safetensors

data other.safetensors x=F32:48x12:rand y=I64:48:mod4
fails "other data" 2 "the run began with 40 training samples, and there are 48" "$weft" train "$mlp" --data other.safetensors \
    "${opts[@]}" --epochs 4 --resume ck
fails "another batch size" 2 "a step of the run had 8 rows" "$weft" train "$mlp" --data good.safetensors "${opts[@]}" \
    --batch-size 4 --epochs 4 --resume ck
data ragged.safetensors x=F32:43x12:rand y=I64:43:mod4
ragged() { "$weft" train "$mlp" --data ragged.safetensors --batch-size 8 --optimizer adamw --threads 1 "$@"; }
works "a last batch that is not full" ragged --epochs 3 --last-batch short --out rwhole
works "stopped behind it" ragged --steps 7 --last-batch short --checkpoint-every 7 --out rpart
fails "another rule for it" 2 "an epoch of the run has 6 steps, and now has 5" ragged --epochs 3 --resume rpart
works "the same rule" ragged --epochs 3 --last-batch short --resume rpart
check "the same bytes" cmp rwhole/final.safetensors rpart/final.safetensors
fails "another order" 2 "visits its samples in another order" train --epochs 4 --seed 7 --resume ck
"$weft" train "$mlp" --data good.safetensors --batch-size 8 --steps 3 --out bare >out 2>err </dev/null
cp bare/final.safetensors kept
fails "a run without checkpoints is not begun anew in its own folder" 2 "ended without checkpoints" "$weft" train "$mlp" \
    --data good.safetensors --batch-size 8 --steps 3 --resume bare --out bare
check "its weights are there" cmp kept bare/final.safetensors
fails "another optimiser" 2 "which this training has not" "$weft" train "$mlp" --data good.safetensors --batch-size 8 --optimizer sgd \
    --momentum 0.9 --eval-data good.safetensors --epochs 4 --resume ck
fails "no folder to write to" 2 "there is no folder to write to" train --epochs 4 --checkpoint-every 2
fails "a run is there, and nobody resumes it" 2 "already holds a run" train --epochs 4 --out ck

# A full disk: one error, the checkpoint before stays, and the run goes on from it.
mkdir disk
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=2m tmpfs disk 2>/dev/null; then
    trap 'umount "$folder/disk"; cd /; rm -rf "$folder"' EXIT
    works "a checkpoint on a small disk" train --steps 5 --total-steps 20 --threads 1 --checkpoint-every 5 --out disk/run
    head -c 1500000 /dev/zero >disk/fill
    fails "which is full" 1 "a checkpoint needs" train --epochs 4 --threads 1 --checkpoint-every 10 --resume disk/run
    check "leaves nothing unfinished" sh -c '! ls disk/run/checkpoints | grep -q tmp'
    rm disk/fill
    works "and has space again" train --epochs 4 --threads 1 --checkpoint-every 10 --resume disk/run
    check "from the checkpoint before" grep -qF "after step 5" err
    check "to the same bytes" cmp whole/final.safetensors disk/run/final.safetensors
else
    echo "# no tmpfs can be mounted here: the full disk is left out"
fi

# Two ranks; their number may change when a step's rows stay the same, and the sums are elastic.
data images.safetensors x=F32:80x1x28x28:rand y=I64:80:mod10
image=$refs/mlp_mnist_adamw/model.pt2
some() { "$weft" train "$image" --data images.safetensors --optimizer adamw --threads 1 "$@"; }
two() { some --nproc 2 "$@"; }
works "two ranks" two --steps 12 --out two
works "two ranks, stopped" two --steps 7 --checkpoint-every 7 --out two7
check "a file of each" test -f two7/checkpoints/step-7/rank-1.wfck
works "two ranks, resumed" two --steps 12 --resume two7
check "the same bytes" cmp two/final.safetensors two7/final.safetensors
works "elastic, two ranks" two --steps 12 --deterministic=elastic --out el
works "elastic, two ranks, stopped" two --steps 7 --deterministic=elastic --checkpoint-every 7 --out el7
works "elastic, resumed by one" some --accumulate 2 --steps 12 --deterministic=elastic --resume el7
check "the same bytes" cmp el/final.safetensors el7/final.safetensors
works "two ranks with batch statistics of their own" "$weft" train "$mlp" --data good.safetensors --batch-size 4 --nproc 2 \
    --buffers none --threads 1 --steps 9 --out own
works "stopped" "$weft" train "$mlp" --data good.safetensors --batch-size 4 --nproc 2 --buffers none --threads 1 --steps 4 \
    --checkpoint-every 4 --out own4
works "resumed" "$weft" train "$mlp" --data good.safetensors --batch-size 4 --nproc 2 --buffers none --threads 1 --steps 9 \
    --checkpoint-every 9 --resume own4
works "the ranks' own buffers" "$weft" train "$mlp" --data good.safetensors --batch-size 4 --nproc 2 --buffers none --threads 1 \
    --steps 9 --checkpoint-every 9 --out own9
for r in 0 1; do
    check "of rank $r, too" same_shard own4/checkpoints/step-9/rank-$r.wfck own9/checkpoints/step-9/rank-$r.wfck
done
end
