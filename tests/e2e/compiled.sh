#!/bin/bash
# Compiled steps and the cache: no compiler is needed any more, damaged entries are compiled again, writers may meet.
source "$(dirname "$0")/common.sh"
options=(--optimizer sgd --lr 0.1 --momentum 0.9)
run=(--data good.safetensors --steps 6 --batch-size 8 --threads 1)

works "compile" "$weft" compile "$mlp" "${options[@]}" -o step.weft
works "train the export" "$weft" train "$mlp" "${options[@]}" "${run[@]}" --out a
works "train the step without a compiler" env PATH=/nonexistent WEFT_CC=/nonexistent XDG_CACHE_HOME=/nonexistent \
    "$weft" train step.weft "${run[@]}" --lr 0.1 --out b
check "to the same bytes" cmp a/final.safetensors b/final.safetensors
works "compile for both instruction sets" "$weft" compile "$mlp" "${options[@]}" --isa=v3,v4 -o both.weft
works "info shows both" "$weft" info both.weft
check "v3 and v4" grep -q "x86-64-v3 x86-64-v4" out
# Tiles are there or they are not; a step for them never computes something else in silence.
"$weft" compile "$mlp" "${options[@]}" --isa=amx -o tiles.weft >out 2>err
if grep -q amx_bf16 /proc/cpuinfo; then
    works "--isa amx" "$weft" train tiles.weft "${run[@]}" --out tiles
    check "is what it says" grep -q "with AMX" err
    works "without it" "$weft" train "$mlp" "${options[@]}" "${run[@]}" --out told
    check "the run says what could be asked for" grep -q "x86-64-v4 (it has AMX: --isa amx)" err
    works "and can do without, when told" "$weft" train tiles.weft "${run[@]}" --isa v4 --out untiled
    check "to the same bytes as ever" cmp a/final.safetensors untiled/final.safetensors
else
    fails "--isa amx without AMX" 1 "no AMX" "$weft" train tiles.weft "${run[@]}" --out tiles
fi
works "compile without weights" "$weft" compile "$mlp" "${options[@]}" --no-weights -o bare.weft
check "is smaller" test "$(stat -c %s bare.weft)" -lt "$(stat -c %s step.weft)"
fails "a plan option is too late" 2 "clip-norm" "$weft" train step.weft "${run[@]}" --clip-norm 1
fails "no compiler and no cache" 1 "compiler" env PATH=/nonexistent WEFT_CC=/nonexistent XDG_CACHE_HOME="$folder/none" \
    "$weft" train "$mlp" "${options[@]}" "${run[@]}"

# Which compiler: WEFT_CC alone when it is set, else what PATH has; one that fails is passed over.
real=$(command -v "${CC:-gcc}")
mkdir broken only none
printf '#!/bin/sh\necho "cc: error: bad value for -march" >&2\nexit 1\n' >broken/cc
chmod +x broken/cc
ln -s "$real" only/gcc-12
ln -s "$(command -v as)" "$(command -v ld)" only/
one() { env XDG_CACHE_HOME="$folder/$1" PATH="$2" "$weft" train "$refs/linreg_sgd/model.pt2" --data reg.safetensors --steps 1; }
data reg.safetensors x=F32:16x4:rand y=F32:16x1:rand
works "a compiler that fails" one c1 "$folder/broken:$PATH"
check "is passed over" grep -qE "^warning: $folder/broken/cc does not compile the kernels, .*cc.* is tried" err
works "gcc-12 alone will do" one c2 "$folder/only"
fails "no compiler at all" 1 "no C compiler was found: PATH has no cc, gcc, clang, gcc-NN or clang-NN" one c3 "$folder/none"
check "says what to install" grep -q "apt-get install gcc.*WEFT_CC.*needs none" err
fails "WEFT_CC that fails" 1 "bad value for -march" env WEFT_CC="$folder/broken/cc" XDG_CACHE_HOME="$folder/c4" \
    "$weft" train "$refs/linreg_sgd/model.pt2" --data reg.safetensors --steps 1
works "the list of compilers" env PATH="$folder/only:$folder/none" "$weft" env
check "is what was found" test "$(tail -1 out)" = "  $folder/only/gcc-12"
mkdir scratch
works "scratch files" env TMPDIR="$folder/scratch" XDG_CACHE_HOME="$folder/c5" "$weft" compile "$mlp" -o s.weft
check "are removed" test -z "$(ls scratch)"
fails "those of a failure" 1 "bad value" env WEFT_CC="$folder/broken/cc" TMPDIR="$folder/scratch" XDG_CACHE_HOME="$folder/c6" \
    "$weft" compile "$mlp" -o s.weft
check "are removed as well" test -z "$(ls scratch)"

# A second run takes the step from the cache; a damaged entry is compiled again with a warning.
works "a second run" "$weft" train "$mlp" "${options[@]}" "${run[@]}"
check "uses the cache" grep -q "taken from the cache" err
for entry in cache/weft/x/*/*.weft; do printf 'damaged' | dd of="$entry" bs=1 seek=100 conv=notrunc 2>/dev/null; done
works "with a damaged entry" "$weft" train "$mlp" "${options[@]}" "${run[@]}" --out c
check "warns" grep -q "warning: the cached step is damaged and is compiled again" err
check "and trains to the same bytes" cmp a/final.safetensors c/final.safetensors
works "then the entry is whole again" "$weft" train "$mlp" "${options[@]}" "${run[@]}"
check "and used" grep -q "taken from the cache" err

# A damaged kernel is compiled again, and its entry made whole.
rm -r cache/weft/x
for entry in cache/weft/k/*/*.o; do truncate -s 100 "$entry"; done
works "with damaged kernels" "$weft" train "$mlp" "${options[@]}" "${run[@]}" --out d
check "warns of them once" test "$(grep -c "^warning: cached kernels were damaged and are compiled again: " err)" = 1
check "the same bytes" cmp a/final.safetensors d/final.safetensors
rm -r cache/weft/x
works "after that they are whole" "$weft" train "$mlp" "${options[@]}" "${run[@]}"
check "nothing to warn of" sh -c '! grep -q "^warning: " err'
check "and used" grep -q " 0 compiled now" err
works "the cache can be listed" "$weft" cache ls
check "with steps and kernels" sh -c 'grep -q " step " out && grep -q " kernel " out'
works "and emptied" "$weft" cache rm all
check "of everything" test -z "$(find cache -type f)"

# No cache folder that can be written.
touch nodir
works "an impossible cache folder" "$weft" train "$mlp" "${options[@]}" "${run[@]}" --cache-dir nodir/x
check "is a warning" grep -q "^warning: " err
works "no cache at all" env -u HOME -u XDG_CACHE_HOME "$weft" train "$mlp" "${options[@]}" "${run[@]}"
check "is none" sh -c '! grep -q "^warning: " err'

# Four writers at once, starting from nothing.
for i in 1 2 3 4; do
    "$weft" compile "$refs/linreg_sgd/model.pt2" -o "$i.weft" 2>"log$i" &
    jobs[i]=$!
done
failed=0
for i in 1 2 3 4; do wait "${jobs[i]}" || { failed=1; cat "log$i" >>err; }; done
say $failed "four processes compile at the same time"
check "the same step" sh -c 'cmp 1.weft 2.weft && cmp 2.weft 3.weft && cmp 3.weft 4.weft'
end
