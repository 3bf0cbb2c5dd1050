#!/usr/bin/env bash
# Creates the virtual environment from the hashed lock files, then adds the project itself.
set -euo pipefail
python="${PYTHON:-python3}"
venv="${VENV:-.venv}"

if ! command -v "$python" >/dev/null; then
    echo "setup: $python not found; install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3" >&2
    exit 2
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "setup: $("$python" --version) is too old; Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2
    exit 2
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "setup: Python's venv module is missing; install it with: apt-get install python$version-venv" >&2
    exit 2
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
echo "setup: installing locked packages into $venv (the first time takes a minute or two)"
"${pip[@]}" install --require-hashes -r deploy/locks/build.txt
"${pip[@]}" install --require-hashes -r deploy/locks/dev.txt
"${pip[@]}" install --no-deps --no-build-isolation -e .
echo "setup: done"
