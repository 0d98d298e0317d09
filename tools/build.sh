#!/usr/bin/env bash
# Builds the book into _build/html; any warning fails the build. Needs tools/setup.sh to have run.
#
#   tools/build.sh --all    builds every page again, and so sees every warning
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"

# Sphinx does not look at styles, scripts, its extensions, the Python that pages carry and what every page repeats
# when it decides what is old.
built=_build/html/searchindex.js
if [ -f "$built" ] && find book/_static book/_ext allranks CITATION.cff -type f -not -name '*.pyc' -newer "$built" | grep -q .; then
    set -- --all "$@"
fi

echo "build: jupyter-book into _build/html"
jupyter-book build --nitpick --warningiserror --keep-going --quiet "$@" .
