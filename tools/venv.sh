#!/bin/sh
# usage: venv.sh FOLDER PACKAGE...   a private Python environment with these packages; quick when it is there already.
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
[ "$(cat "$folder/.packages" 2>/dev/null || true)" = "$*" ] && exit 0
echo "installing $* into $folder (once)" >&2
# Debian's own python has the venv module that deps.sh installed; another python on the PATH may lack it.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
printf '%s\n' "$*" >"$folder/.packages"
