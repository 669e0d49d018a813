#!/bin/bash
# usage: deps.sh [build] [demo] [check] [bench]
# Finds the Debian packages that these jobs need and that are missing, says which and why, and installs them.
# Quick when nothing is missing. Never asks a question when there is no terminal.
set -u

needs() { # job, package, why
    case " $jobs " in *" $1 "*) packages+=("$2"); why[$2]=$3 ;; esac
}

jobs="${*:-build}"
declare -a packages=()
declare -A why=()
needs build gcc "compiles Weft, and the kernels that Weft generates"
needs build libc6-dev "C headers"
needs build cmake "configures the build"
needs build make "runs the build"
needs build pkg-config "tells other programs how to link Weft"
needs build libjansson-dev "JSON: the graph inside a .pt2 file"
needs build libyaml-dev "YAML: settings of a run"
needs build libxxhash-dev "checksums"
needs build libssl-dev "SHA-256: signatures of graphs and cached kernels"
needs build zlib1g-dev "gzip-compressed data sets"
needs build libjpeg62-turbo-dev "JPEG: folders of pictures"
needs build libpng-dev "PNG: folders of pictures"
needs build libzip-dev "writes archives"
needs build libdnnl-dev "oneDNN: matrix products and convolutions"
needs build libhwloc-dev "binds ranks and threads to cores"
needs demo dataset-fashion-mnist "Fashion-MNIST, the pictures that the demo learns"
needs check clang "second compiler: warnings, and kernels built by it"
needs check libcmocka-dev "unit tests"
needs check libopenmpi-dev "ranks over Open MPI: the plugin and its tests"
needs check openmpi-bin "mpirun of Open MPI"
needs check libmpich-dev "ranks over MPICH: the plugin and its tests"
needs check mpich "mpirun of MPICH"
needs check python3 "parts of the end-to-end tests"
needs check dataset-fashion-mnist "Fashion-MNIST, for the end-to-end tests"
needs bench python3 "runs PyTorch, for the comparison only"
needs bench python3-venv "keeps PyTorch in build/venv, away from your system"

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "This is not a Debian system, so nothing is installed. Weft needs what these Debian packages hold:" >&2
    for p in "${packages[@]}"; do printf '  %-22s %s\n' "$p" "${why[$p]}" >&2; done
    exit 0
fi

installed=" $(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null |
    awk '$1 == "installed" { printf "%s ", $2 }')"
missing=()
for p in "${packages[@]}"; do
    case "$installed" in *" $p "*) ;; *) missing+=("$p") ;; esac
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "Weft needs ${#missing[@]} more Debian package(s):" >&2
for p in "${missing[@]}"; do printf '  %-22s %s\n' "$p" "${why[$p]}" >&2; done

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Please install them as root:  apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
    [ -t 0 ] || as_root=(sudo -n)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q "$@" </dev/null >&2; }
# The package lists of a fresh machine are often empty or old: fetch them only when the first try fails.
apt install --no-install-recommends "${missing[@]}" && exit 0
apt update && apt install --no-install-recommends "${missing[@]}" && exit 0
echo "Installing failed. Please install by hand:  apt-get install ${missing[*]}" >&2
exit 1
