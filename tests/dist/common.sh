# Sourced by the tests of this folder: real ranks, and what must hold after each. Prints TAP.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
rank=${WEFT_BUILD:-$PWD/build}/tests/dist_rank
export PYTHONPATH=$PWD/tests/e2e PYTHONDONTWRITEBYTECODE=1 # tensors.py
export WEFT_PLUGIN_DIR=${WEFT_BUILD:-$PWD/build}
# A machine of tests may run them as root, and has few cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
unset TORCHELASTIC_ERROR_FILE RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0 failures=0
shm_before=$(ls /dev/shm)

check() { # NAME COMMAND...
    local name=$1
    shift
    number=$((number + 1))
    if "$@"; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/#   /' "$work/err" "$work/out" 2>/dev/null | head -20
        failures=$((failures + 1))
    fi
}

# Runs a command; its exit code is in $code, its time in $took (ms), its output in $work/out and $work/err.
run() {
    local begun
    begun=$(date +%s%N)
    timeout -k 2 120 "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    took=$((($(date +%s%N) - begun) / 1000000))
}

# Every rank of these tests carries a mark of this test in its environment, so that what is left can be told from the
# ranks of somebody else.
export TEST_MARK=$$-$RANDOM
left_over() { grep -lz "^TEST_MARK=$TEST_MARK$" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | while read -r p; do
    case $(cat "/proc/$p/comm" 2>/dev/null) in dist_rank | weft) echo "$p" ;; esac
done; }
# New names in /dev/shm that no living process of somebody else holds: another MPI job may run beside these tests.
left_in_shm() { comm -13 <(echo "$shm_before") <(ls /dev/shm) | while read -r f; do
    held=$(grep -lsF "/dev/shm/$f" /proc/[0-9]*/maps | cut -d/ -f3 | while read -r p; do
        grep -qsz "^TEST_MARK=$TEST_MARK$" "/proc/$p/environ" || echo "$p"
    done)
    [ -n "$held" ] || echo "$f"
done; }
nothing_left() {
    local i
    for i in $(seq 40); do # a killed process takes a moment to go
        [ -z "$(left_over)$(left_in_shm)" ] && return 0
        sleep 0.05
    done
    left_over
    left_in_shm
    return 1
}
says() { grep -qF -- "$1" "$work/err"; }
said_once() { [ "$(grep -cE '^error(\[W[0-9]{4}\])?: ' "$work/err")" -eq 1 ]; }

end() {
    echo "1..$number"
    [ "$failures" -eq 0 ]
    exit
}
