#!/usr/bin/env bash
# Resolves the lock files anew, all from one resolution; needs uv in the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
out=deploy/locks
compile() {
    uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11 "$@"
}
build_needs=$(mktemp)
trap 'rm -f "$build_needs"' EXIT
printf 'hatchling>=1.27\neditables\n' >"$build_needs"

compile --extra bridge --extra demo --extra dev pyproject.toml "$build_needs" -o $out/dev.txt
compile pyproject.toml -c $out/dev.txt -o $out/gateway.txt
compile --extra bridge pyproject.toml -c $out/dev.txt -o $out/bridge.txt
compile "$build_needs" -c $out/dev.txt -o $out/build.txt
