#!/bin/sh
# usage: build.sh FOLDER [CMAKE FLAG...]   configures (when needed) and builds; quiet unless something is wrong.
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
stamp="$*"
if [ ! -f "$folder/CMakeCache.txt" ] || [ "$(cat "$folder/.flags" 2>/dev/null || echo none)" != "$stamp" ]; then
    mkdir -p "$folder"
    cmake --fresh -S . -B "$folder" "$@" >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log" >&2; exit 1; }
    printf '%s\n' "$stamp" >"$folder/.flags"
fi
cmake --build "$folder" -j "${JOBS:-$(nproc)}" >"$folder/build.log" 2>&1 || {
    grep -E 'error|Error|undefined|warning' "$folder/build.log" | head -60 >&2
    echo "the build failed; the whole log is $folder/build.log" >&2
    exit 1
}
grep -E 'warning:' "$folder/build.log" >&2 || true
