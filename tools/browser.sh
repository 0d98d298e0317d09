#!/usr/bin/env bash
# Makes sure there is a Chromium for the page checks; installs Debian's or Ubuntu's where the user may.
set -euo pipefail

say() { echo "browser: $*"; }
die() { echo "browser: $*" >&2; exit 1; }

find_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi; }

may_install() { command -v apt-get > /dev/null && as_root true 2> /dev/null; }

install_browser() {
    say "installing chromium with apt-get"
    as_root env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get update -q && apt-get install -qy --no-install-recommends chromium' > /dev/null < /dev/null ||
        die "apt-get could not install chromium (its message is above); install Chromium or Google Chrome by hand and run this again."
}

if ! find_browser > /dev/null; then
    may_install || die "the page checks need a browser: install Chromium or Google Chrome (Debian: sudo apt-get install chromium) and run this again."
    install_browser
    find_browser > /dev/null || die "apt-get's chromium brought no browser; install Chromium or Google Chrome by hand and run this again."
fi
say "using $(find_browser)"
