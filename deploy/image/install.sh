#!/usr/bin/env bash
# Installs what a reader's server needs. The image, Binder and benchmarks/image.py run these very steps.
#
#   install.sh system        Debian packages: git, a compiler for torch.compile, an init that reaps ranks
#   install.sh user          the user that hubs expect: jovyan, uid 1000
#   install.sh environment   the Python packages, into PREFIX
#   install.sh book          the package allranks, the notebooks and train.py, into PREFIX
#   install.sh check         fails unless what is in PREFIX works
#
#   PREFIX=/opt/allranks     an environment that is there is used; else one is made, for which PYTHON is asked
#   VARIANT=cuda             or cpu: which torch
#   HUB=                     the hub's version of JupyterHub, if not that of constraints.txt; none: it is there already
#   TORCH_CPU=URL            where to find torch without CUDA; empty: where pip looks anyway
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

PREFIX=${PREFIX:-/opt/allranks}
VARIANT=${VARIANT:-cuda}
HUB=${HUB:-}
PYTHON=${PYTHON:-python3}
TORCH_CPU=${TORCH_CPU-https://download.pytorch.org/whl/cpu}

say() { echo "image: $*"; }
die() { echo "image: $*" >&2; exit 1; }

system() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends ca-certificates git g++ tini > /dev/null
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache /var/log/*.log /var/log/apt
}

user() {
    local name=${NB_USER:-jovyan} id=${NB_UID:-1000}
    useradd --create-home --uid "$id" --gid 100 --shell /bin/bash --no-log-init "$name" # group users: fsGid of the charts
}

pip() { "$PREFIX/bin/python" -m pip --no-input --disable-pip-version-check --no-cache-dir "$@"; }

needs() { "$PREFIX/bin/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")'; }

environment() {
    local wanted pinned torch=()
    [ -x "$PREFIX/bin/python" ] || "$PYTHON" -m venv "$PREFIX"
    wanted=$(mktemp) pinned=$(mktemp)
    { needs; cat deploy/image/requirements.txt; } > "$wanted"
    cp constraints.txt "$pinned"
    case $HUB in
        '') ;;
        none) sed -i '/^jupyterhub /d' "$wanted" ;;
        *)
            sed -i 's/^jupyterhub .*/jupyterhub/' "$wanted"
            sed -i "s/^jupyterhub==.*/jupyterhub==$HUB/" "$pinned"
            ;;
    esac
    if [ "$VARIANT" = cpu ] && [ -n "$TORCH_CPU" ]; then torch=(--extra-index-url "$TORCH_CPU"); fi
    say "installing the Python packages into $PREFIX, torch for $VARIANT"
    pip install --quiet -r "$wanted" -c "$pinned" "${torch[@]}"
    rm -f "$wanted" "$pinned"
}

book() {
    say "installing the book into $PREFIX"
    local source
    source=$(mktemp -d)
    cp -R allranks pyproject.toml README.md LICENSE "$source" # setuptools writes beside what it reads
    pip install --quiet --no-deps --no-build-isolation "$source"
    rm -rf "$source"
    install -d "$PREFIX/share/allranks" "$PREFIX/share/jupyter/lab/settings"
    cp -R notebooks "$PREFIX/share/allranks"
    install -m 644 deploy/image/healthcheck.py deploy/cluster/train.py "$PREFIX/share/allranks"
    install -m 644 tools/jupyterlab/overrides.json "$PREFIX/share/jupyter/lab/settings"
}

check() {
    local loaded
    loaded=$("$PREFIX/bin/jupyter-server" extension list 2>&1)
    grep -q 'nbgitpuller.*enabled' <<< "$loaded" || die "the server does not load nbgitpuller; it loads: $loaded"
    if [ "$HUB" != none ]; then # else there are packages in the environment that are not ours
        pip check
        "$PREFIX/bin/jupyterhub-singleuser" --version
    fi
    VARIANT=$VARIANT "$PREFIX/bin/python" deploy/image/check.py
}

case $VARIANT in cuda | cpu) ;; *) die "VARIANT is '$VARIANT'; it is cuda or cpu" ;; esac
case ${1:-} in
    system | user | environment | book | check) "$1" ;;
    *) die "what to install is '${1:-}'; it is system, user, environment, book or check" ;;
esac
