#!/bin/bash
# Installs into a fresh folder, builds examples/embed.c outside the tree with pkg-config alone, and runs it there, against
# the shared and the static library.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The prefix that the programs find later is not the one of the build.
cmake -S "$source" -B "$folder/build" -DCMAKE_INSTALL_PREFIX="$folder/usr" -DWEFT_TESTS=OFF >/dev/null
cmake --build "$folder/build" -j "$(nproc)" >/dev/null
cmake --install "$folder/build" >/dev/null
cp "$source/examples/embed.c" "$folder"
cd "$folder"
libdir=$(dirname "$(find usr -name weft.pc)")
export PKG_CONFIG_PATH="$folder/$libdir"
gcc -std=c99 -pedantic -Wall -Wextra -Werror embed.c $(pkg-config --cflags --libs weft) -o embed
LD_LIBRARY_PATH="$folder/$(dirname "$libdir")" ./embed "$source/examples/fashion.pt2" shared.safetensors
gcc -std=c99 embed.c $(pkg-config --cflags weft) "$(find usr -name libweft.a)" $(pkg-config --static --libs-only-l weft |
    sed 's/-lweft\b//') -o embed-static
./embed-static "$source/examples/fashion.pt2" static.safetensors
cmp shared.safetensors static.safetensors
# Nothing but the API leaves the library, and the runtime library holds no compiler.
nm -D --defined-only "$(find usr -name 'libweft.so' | head -1)" | awk '{ print $3 }' | grep -v '^weft_' && exit 1
"$folder/usr/bin/weft" --version
