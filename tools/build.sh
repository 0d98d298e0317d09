#!/usr/bin/env bash
# Builds the book into _build/html; any warning fails the build. Needs tools/setup.sh to have run.
#
#   tools/build.sh --all    builds every page again, and so sees every warning
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"

echo "build: jupyter-book into _build/html"
jupyter-book build --nitpick --warningiserror --keep-going --quiet "$@" .
