#!/bin/bash
# Installs into a fresh folder, builds examples/embed.c outside the tree with what pkg-config says, and runs it there,
# against the shared and the static library.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
DESTDIR=$folder cmake --install "${WEFT_BUILD:-$source/build}" >/dev/null
cp "$source/examples/embed.c" "$folder"
cd "$folder"
PKG_CONFIG_PATH=$(dirname "$(find "$folder" -name weft.pc)")
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR="$folder"
libdir=$(dirname "$PKG_CONFIG_PATH")
gcc -std=c99 -pedantic -Wall -Wextra -Werror embed.c $(pkg-config --cflags --libs weft) -o embed
LD_LIBRARY_PATH=$libdir ./embed "$source/examples/fashion.pt2" shared.safetensors
gcc -std=c99 embed.c $(pkg-config --cflags weft) "$libdir/libweft.a" \
    $(pkg-config --static --libs-only-l weft | sed 's/-lweft\b//') -o embed-static
./embed-static "$source/examples/fashion.pt2" static.safetensors
cmp shared.safetensors static.safetensors
for library in libweft.so libweft-run.so; do
    if nm -D --defined-only "$libdir/$library" | awk '{ print $3 }' | grep -v '^weft_'; then
        echo "$library shows names that are not in weft.h"
        exit 1
    fi
done
for file in man/man1/weft.1 man/man1/weft-train.1 bash-completion/completions/weft zsh/site-functions/_weft \
    fish/vendor_completions.d/weft.fish; do
    [ -n "$(find "$folder" -type f -path "*/share/$file")" ] || { echo "share/$file is not installed"; exit 1; }
done
"$(find "$folder" -type f -path '*/bin/weft')" --version
