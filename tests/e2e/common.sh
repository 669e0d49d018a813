# Sourced by the tests of this folder: a scratch folder with data for the small models of tests/refs, and assertions
# that print TAP. `fails CODE TEXT COMMAND...`: the command ends with that code and says TEXT in its one error message.
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
weft=${WEFT:-$source/build/weft}
refs=$source/tests/refs
mlp=$refs/dynamic_batch_mlp/model.pt2
folder=$(mktemp -d)
export XDG_CACHE_HOME=$folder/cache PYTHONPATH=$source/tests/e2e PYTHONDONTWRITEBYTECODE=1
unset WEFT_CACHE_DIR WEFT_DUMP_DIR WEFT_THREADS WEFT_ISA WEFT_LOG
number=0 bad=0
trap 'cd /; rm -rf "$folder"' EXIT
cd "$folder" || exit 1

data() { python3 "$source/tests/e2e/tensors.py" "$@"; }
data good.safetensors x=F32:40x12:rand y=I64:40:mod4

say() { # 0|1 NAME   one line of TAP; after a failure what the command said
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        [ -f err ] && sed 's/^/#   /' err | tail -5
        bad=1
    fi
}

works() { # NAME COMMAND...
    local name=$1
    shift
    "$@" >out 2>err </dev/null
    say $? "$name"
}

fails() { # NAME CODE TEXT COMMAND...
    local name=$1 code=$2 text=$3 got
    shift 3
    "$@" >out 2>err </dev/null
    got=$?
    if [ $got -eq "$code" ] && grep -qF -- "$text" err && [ "$(grep -cE '^error\[W[0-9]{4}\]: ' err)" -eq 1 ]; then
        say 0 "$name"
    else
        echo "#   exit code $got instead of $code, or no \"$text\"" >>err
        say 1 "$name"
    fi
}

check() { # NAME COMMAND...   the command's success is the test
    local name=$1
    shift
    "$@" >>err 2>&1
    say $? "$name"
}

end() {
    echo "1..$number"
    exit $bad
}
