#!/bin/sh
# usage: venv.sh FOLDER PACKAGE...   a private Python environment with at least these packages; quick when they are there.
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
have=" $(cat "$folder/.packages" 2>/dev/null || true) " missing=
for p in "$@"; do
    case "$have" in *" $p "*) ;; *) missing="$missing $p" ;; esac
done
[ -z "$missing" ] && exit 0
echo "installing$missing into $folder (once)" >&2
# Debian's own python has the venv module that deps.sh installed; another python on the PATH may lack it.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
# shellcheck disable=SC2086
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check $missing
printf '%s\n' "${have# }${missing# }" >"$folder/.packages"
