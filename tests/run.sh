#!/bin/bash
# usage: tests/run.sh [WORD...]   builds with gcc and clang and runs all tests, or only the sections named:
# lint unit ir golden refs e2e dist clang asan tsan fuzz, and python, which is not among "all" (make check-python). The last line is
# "N passed, N failed".
#
# A test is a program. When it prints TAP, each of its lines counts; otherwise its exit code counts as one test (77: it
# was left out, and says why). Every output is kept in build/logs; that of a failed test is shown.
cd "$(dirname "$0")/.." || exit 1
sections="${*:-lint unit ir golden refs e2e dist clang asan tsan fuzz}"
export WEFT="$PWD/build/weft" WEFT_BUILD="$PWD/build" CMOCKA_MESSAGE_OUTPUT=TAP
# Tests neither use nor fill the caches of the person who runs them.
export XDG_CACHE_HOME="$PWD/build/test-cache"
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-allocator_may_return_null=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
logs=build/logs
rm -rf "$logs"
mkdir -p "$logs" "$XDG_CACHE_HOME"
passed=0 failed=0 skipped=0
names=()
slots=${JOBS:-$(nproc)}

wants() { case " $sections " in *" $1 "*) return 0 ;; *) return 1 ;; esac }

start() { # NAME SECONDS COMMAND...   begins a test; at most $slots run at once
    local name=$1 limit=$2 log=$logs/${1//\//_}
    shift 2
    names+=("$name")
    while [ "$(jobs -rp | wc -l)" -ge "$slots" ]; do wait -n; done
    (
        timeout -k 5 "$limit" "$@" >"$log.log" 2>&1 </dev/null
        echo $? >"$log.rc"
    ) &
}

finish() { # waits for all tests begun, counts and shows them in the order in which they were begun
    local name log code good bad
    wait
    for name in "${names[@]}"; do
        log=$logs/${name//\//_}.log
        code=$(cat "${log%.log}.rc" 2>/dev/null || echo 1)
        good=$(grep -cE '^ok [0-9]' "$log")
        bad=$(grep -cE '^not ok ' "$log")
        if [ "$code" -eq 77 ] && [ $((good + bad)) -eq 0 ]; then
            skipped=$((skipped + 1))
            echo "skip  $name: $(tail -1 "$log")"
            continue
        fi
        if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
        if [ "$code" -eq 0 ] && [ $((good + bad)) -eq 0 ] && ! grep -q '^1\.\.0' "$log"; then good=1; fi
        passed=$((passed + good))
        failed=$((failed + bad))
        if [ "$bad" -eq 0 ]; then
            echo "ok    $name ($good)"
        else
            echo "FAIL  $name ($bad of $((good + bad)); exit code $code; $log)"
            if grep -qE '^not ok ' "$log"; then
                grep -nE -A6 '^not ok ' "$log" | head -60 | sed 's/^/      /'
            else
                tail -30 "$log" | sed 's/^/      /'
            fi
        fi
    done
    names=()
}

end() {
    [ "$skipped" -gt 0 ] && echo "$skipped left out (see above)"
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}

# The build that users get. Without it nothing else can be tested.
if ! tools/build.sh build >"$logs/build_gcc.log" 2>&1; then
    cat "$logs/build_gcc.log"
    failed=1
    end
fi
if grep -q 'warning:' "$logs/build_gcc.log"; then
    echo "FAIL  build/gcc: warnings"
    head -20 "$logs/build_gcc.log"
    failed=$((failed + 1))
else
    echo "ok    build/gcc (1)"
    passed=$((passed + 1))
fi

unit() { # PREFIX FOLDER [NAME...]   the unit tests of one build
    local prefix=$1 folder=$2 test
    shift 2
    for test in "$folder"/tests/test_*; do
        [ -x "$test" ] || continue
        case "$# $* " in "0 "* | *" $(basename "$test") "*) start "$prefix/$(basename "$test")" 900 "$test" ;; esac
    done
    finish
}

if wants lint; then
    start lint 60 tools/lint.sh
    start lint/docs 60 tools/docs.sh build/weft --check
    finish
fi
if wants unit; then unit unit build; fi
if wants ir && ls tests/ir/*.ir >/dev/null 2>&1; then start ir 300 tests/run_ir.sh build/weft; finish; fi
if wants golden; then start golden 600 tests/golden.sh build/weft; finish; fi
if wants refs; then
    for case in tests/refs/*/case.json; do
        [ -f "$case" ] && start "refs/$(basename "$(dirname "$case")")" 300 build/weft verify "$(dirname "$case")"
    done
    finish
fi
if wants e2e; then
    for script in tests/e2e/*.sh; do # one at a time: they use all cores themselves
        [ -x "$script" ] && { start "e2e/$(basename "$script" .sh)" 900 "$script"; finish; }
    done
fi
if wants dist; then # real ranks, which fill the machine themselves
    for script in tests/dist/*.sh; do
        [ -x "$script" ] && { start "dist/$(basename "$script" .sh)" 900 "$script"; finish; }
    done
fi
if wants python; then # what Weft writes, read by the packages that it is for
    for script in tests/torch/test_*.py; do
        start "python/$(basename "$script" .py)" 600 "${WEFT_PYTHON:-build/venv/bin/python}" "$script"
    done
    finish
fi
if wants clang; then
    start build/clang 900 tools/build.sh build/clang -DCMAKE_C_COMPILER=clang -DWEFT_WERROR=ON -DWEFT_TESTS=OFF
    finish
fi
if wants asan || wants fuzz; then
    start build/asan 900 tools/build.sh build/asan "-DWEFT_SANITIZE=address;undefined"
    finish
fi
if wants asan; then unit asan build/asan; fi
if wants tsan; then
    start build/tsan 900 tools/build.sh build/tsan -DWEFT_SANITIZE=thread
    finish
    # The tests in which threads meet.
    unit tsan build/tsan test_thread test_base test_formats test_expr test_run test_accumulate test_train test_comm test_collective
    start tsan/dist_rank 600 build/tsan/tests/dist_rank launch 3 values 20000
    finish
fi
if wants fuzz; then
    seconds=${FUZZ_SECONDS:-10}
    for target in build/asan/fuzz/fuzz_*; do
        [ -x "$target" ] || continue
        name=$(basename "$target")
        start "fuzz/${name#fuzz_}" $((seconds * 4 + 60)) "$target" "-max_total_time=$seconds" \
            -damages=2000 "-seed=${FUZZ_SEED:-0}" "tests/fuzz/corpus/${name#fuzz_}"
    done
    finish
fi
end
