#!/usr/bin/env bash
# Makes sure there is what the hub's sandboxes are made of; installs Debian's or Ubuntu's packages where the user may.
set -euo pipefail

say() { echo "hub: $*"; }
die() { echo "hub: $*" >&2; exit 1; }

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi; }

missing=()
for pair in bwrap:bubblewrap socat:socat setpriv:util-linux; do
    command -v "${pair%%:*}" > /dev/null || missing+=("${pair##*:}")
done
if [ "${#missing[@]}" -gt 0 ]; then
    if ! command -v apt-get > /dev/null || ! as_root true 2> /dev/null; then
        die "install ${missing[*]} and run this again (Debian, Ubuntu: sudo apt-get install ${missing[*]})."
    fi
    say "installing ${missing[*]} with apt-get"
    as_root env DEBIAN_FRONTEND=noninteractive sh -c "apt-get update -q && apt-get install -qy --no-install-recommends ${missing[*]}" > /dev/null < /dev/null ||
        die "apt-get could not install ${missing[*]} (its message is above); install them by hand and run this again."
fi
say "using $(bwrap --version)"
