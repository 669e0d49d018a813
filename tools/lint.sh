#!/bin/bash
# usage: lint.sh   Checks what a compiler cannot: who may include whom (docs/design.md, section 2), where getenv and
# exit may stand, and that no file names a machine. Prints TAP; the places follow a failed line as comments.
cd "$(dirname "$0")/.." || exit 1

compile_rooms="base ir ops import simplify precision grad weave fuse plan emit onnx kernels exe"
run_rooms="base kernels exe comm run exchange"
may_include() { # room -> the rooms whose header it may include
    case $1 in
    base) echo base ;;
    ir) echo base ir ;;
    ops) echo base ir ops ;;
    import | simplify | precision | onnx) echo base ir ops "$1" ;;
    grad) echo base ir ops exe grad ;; # exe: the parameter groups, which are of the executable
    weave | fuse) echo base ir ops kernels "$1" ;;
    plan) echo base ir ops import simplify precision grad weave fuse kernels exe plan ;;
    emit) echo base ir ops import simplify precision grad weave fuse plan kernels exe emit ;;
    kernels | exe | comm | data) echo base "$1" ;;
    run) echo base kernels exe comm run ;;
    exchange) echo "$run_rooms" ;;
    report) echo base kernels exe comm run report ;;
    train | serve) echo "$run_rooms" report data "$1" ;;
    pipeline) echo "$compile_rooms" pipeline ;;
    api) echo "$compile_rooms" "$run_rooms" report data train serve pipeline api ;;
    cli) echo "$compile_rooms" "$run_rooms" report data train serve pipeline api cli ;;
    esac
}

number=0 bad=0
report() { # what, places
    number=$((number + 1))
    if [ -z "$2" ]; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        printf '%s\n' "$2" | sed 's/^/#   /'
        bad=1
    fi
}

rooms() { # every include of another room's header that the table does not allow
    local file room allowed line header target
    for file in src/*.[ch] src/*/*.[ch]; do
        [ -f "$file" ] || continue
        room=${file#src/}
        case $room in */*) room=${room%%/*} ;; *) room=pipeline ;; esac
        allowed=" $(may_include "$room" | tr '\n' ' ') "
        while IFS= read -r line; do
            header=${line#*\"}
            header=${header%%\"*}
            case $header in
            weft.h) continue ;;
            pipeline.h) target=pipeline ;;
            */*) target=${header%%/*} ;;
            *) echo "$file: \"$header\" is not written as room/file.h"; continue ;;
            esac
            case $allowed in
            *" $target "*) ;;
            *) echo "$file: $room may not include $header"; continue ;;
            esac
            if [ "$target" != "$room" ] && [ "$target" != pipeline ] && [ "$header" != "$target/$target.h" ]; then
                echo "$file: $header is private to its room"
            fi
        done < <(grep -hE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$file")
    done
}
report "rooms include only what the design allows" "$(rooms)"
report "getenv stands in base/env.c only" \
    "$(grep -nE '\b(secure_)?getenv *\(' -r src --include='*.[ch]' | grep -v '^src/base/env\.c:')"
report "the library never exits" \
    "$(grep -nE '\bexit *\(' -r src --include='*.c' | grep -v '^src/cli/' | grep -vE '^[^:]*:[0-9]*: *(/?\*|//)')"
# The pattern is written in pieces so that this file does not find itself.
tracked=$(git ls-files 2>/dev/null || find . -type f -not -path './build/*' -not -path './.git/*')
machine="/(work|farm|root)/|pypi\\.""org|files\\.python""hosted|deb\\.""debian\\.org"
report "no file names a machine or a package host" \
    "$(printf '%s\n' "$tracked" | grep -vE '\.(pt2|safetensors|gz)$|^tools/lint\.sh$|^LICENSE$' | tr '\n' '\0' |
        xargs -0 -r grep -InE "$machine" 2>/dev/null | cut -c1-160)"
report "no file holds the marks of a merge" "$(printf '%s\n' "$tracked" | tr '\n' '\0' | xargs -0 -r grep -InE '^(<{7}|>{7}) ' 2>/dev/null | cut -c1-120)"
report "every source file opens with a comment on its method" \
    "$(for f in src/*.c src/*/*.c; do [ -f "$f" ] && ! head -1 "$f" | grep -q '^/\*' && echo "$f"; done)"
# Errors: every site names its kind, which stands in errors.list once, under one code, and is used.
report "every error site names a kind" \
    "$(grep -nE '\b(wf_fail|wf_fail_at|wf_fail_node|wf_data_fault|imp_fail)\(' -r src --include='*.[ch]' -A2 | grep -E 'WEFT_ERR_' |
        grep -v 'WF_NORETURN')"
kinds=$(grep -oE '^WF_ERROR\(WF_E_[A-Z0-9_]+' src/base/errors.list | cut -d'(' -f2)
report "every kind of error is used" \
    "$(for k in $kinds; do grep -rqw "$k" src --include='*.[ch]' || echo "src/base/errors.list: $k"; done)"
report "error codes are told apart and in order" \
    "$(grep -oE '^WF_ERROR\(WF_E_[A-Z0-9_]+, [0-9]+' src/base/errors.list | awk '{ if ($2 <= last) print; last = $2 }')"
echo "1..$number"
exit $bad
