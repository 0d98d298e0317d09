"""`make hub`: is this machine able to be a hub, and is what was asked for safe? Then JupyterHub takes over.

What can be asked for is in README.md: variables, as in `make hub HUB_PORT=8100 HUB_MEMORY=3G`.
"""

import contextlib
import fcntl
import ipaddress
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import limits
from sign_in import weakness

HERE = Path(__file__).resolve().parent
BOOK = HERE.parents[1]
DEFAULTS = {
    "HUB_ADDRESS": "127.0.0.1",
    "HUB_PORT": "8000",
    "HUB_FOLDER": "~/.local/share/allranks-hub",
    "HUB_MEMORY": "4G",
    "HUB_PROCESSES": "500",
    "HUB_ADMIN": "admin",
}


def stop(text):
    """End with one sentence."""
    raise SystemExit(f"hub: {text}")


def main():
    """Check, prepare, and become JupyterHub."""
    asked = os.environ
    for name, value in DEFAULTS.items():
        asked[name] = asked.get(name) or value
    check_machine()
    check_numbers(asked)
    local = check_address(asked)
    check_safety(asked, local)
    folder = Path(asked["HUB_FOLDER"]).expanduser().resolve()
    asked["HUB_FOLDER"] = str(folder)
    lock = take(folder)
    check_admin(asked["HUB_ADMIN"], folder / "hub.sqlite")
    copy_book(folder)
    short = "/run" if os.access("/run", os.W_OK) else "/tmp"  # a socket's path is at most 107 letters
    with tempfile.TemporaryDirectory(prefix="allranks-hub-", dir=short) as sockets:
        for name in ("hub", "users"):
            Path(sockets, name).mkdir()
        Path(sockets, "hub").chmod(0o755)  # sandboxes read it; nobody else comes through its parent
        asked["HUB_SOCKETS"] = sockets
        say_where(asked, folder, local)
        sys.exit(run_hub(folder, lock))


def check_machine():
    """What the hub needs of this machine."""
    if sys.platform != "linux":
        stop(f"sandboxes need Linux, and this is {sys.platform}; use the image in deploy/image there.")
    for program in ("bwrap", "socat", "setpriv", "git", "configurable-http-proxy", "jupyterhub"):
        if not shutil.which(program):
            stop(f"{program} is missing; run tools/hub.sh, which says what to install.")
    user = "" if os.geteuid() == 0 else "--unshare-user --disable-userns"
    trial = f"bwrap --unshare-all {user} --ro-bind / / --proc /proc --dev /dev --size 4096 --tmpfs /tmp true"
    done = subprocess.run(trial.split(), capture_output=True, text=True)
    if done.returncode:
        stop(
            f"this machine does not allow sandboxes (bwrap says: {done.stderr.strip()}). "
            "It takes bubblewrap 0.8, and a kernel that lets users make user namespaces: "
            "see deploy/local/README.md, What breaks."
        )


def check_numbers(asked):
    """Limits in the forms that JupyterHub takes."""
    if not re.fullmatch(r"\d+(\.\d+)?[KMGT]", asked["HUB_MEMORY"]):
        stop(f"HUB_MEMORY is {asked['HUB_MEMORY']!r}; give a number and K, M, G or T, such as 4G.")
    number, unit = float(asked["HUB_MEMORY"][:-1]), asked["HUB_MEMORY"][-1]
    if number * 1024 ** "KMGT".index(unit) < 512 * 1024:
        stop(f"HUB_MEMORY is {asked['HUB_MEMORY']}; a notebook server and a kernel need at least 512M.")
    for name, least in (("HUB_PORT", 1), ("HUB_PROCESSES", 100), ("HUB_USERS", 1)):
        value = asked.get(name)
        if value and (not value.isdecimal() or int(value) < least):
            stop(f"{name} is {value!r}; give a whole number, at least {least}.")
    if int(asked["HUB_PORT"]) > 65535:
        stop(f"HUB_PORT is {asked['HUB_PORT']}; give a port up to 65535.")


def check_address(asked):
    """True if only this machine can reach the address; ends if the address is not ours or is taken."""
    address, port = asked["HUB_ADDRESS"], int(asked["HUB_PORT"])
    try:
        number = ipaddress.ip_address("127.0.0.1" if address == "localhost" else address)
    except ValueError:
        stop(f"HUB_ADDRESS is {address!r}; give a number such as 127.0.0.1, or 0.0.0.0 for every network.")
    family = socket.AF_INET6 if number.version == 6 else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((str(number), port))
        except OSError as error:
            stop(f"cannot listen on {address}, port {port}: {error.strerror}. Set HUB_ADDRESS or HUB_PORT.")
    return number.is_loopback


def check_safety(asked, local):
    """Passwords and names that everybody guesses, and passwords in clear, stay on this machine."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", asked["HUB_ADMIN"]):
        stop(f"HUB_ADMIN is {asked['HUB_ADMIN']!r}; give small letters, digits, - and _, a letter first.")
    password = asked.get("HUB_ADMIN_PASSWORD", "")
    if password and (why := weakness(password)):
        stop(f"HUB_ADMIN_PASSWORD {why}; give a better one, or none: the hub then makes one.")
    pair = [asked.get(name, "") for name in ("HUB_CERTIFICATE", "HUB_KEY")]
    if any(pair) and not all(file and os.access(file, os.R_OK) for file in pair):
        stop("HUB_CERTIFICATE and HUB_KEY belong together, and both have to be files that you can read.")
    above = asked.get("HUB_SUBDOMAINS", "")
    if above and not re.fullmatch(r"https?://[a-z0-9.-]+(:\d+)?", above):
        stop(
            f"HUB_SUBDOMAINS is {above!r}; give the address under which each user gets a name, "
            "such as https://hub.example.org: users are then at https://NAME.hub.example.org."
        )
    asked["HUB_SIGN_UP"] = asked.get("HUB_SIGN_UP") or ("open" if local else "ask")
    if asked["HUB_SIGN_UP"] not in ("open", "ask"):
        stop(
            f"HUB_SIGN_UP is {asked['HUB_SIGN_UP']!r}; say open, or ask: "
            "then an administrator lets people in."
        )
    if local:
        return
    if not any(pair) and asked.get("HUB_PLAIN_HTTP") != "yes":
        stop(
            f"on {asked['HUB_ADDRESS']} passwords would travel in clear: give HUB_CERTIFICATE and HUB_KEY, "
            "or put a proxy with TLS before 127.0.0.1 and say HUB_SIGN_UP=ask, "
            "or say HUB_PLAIN_HTTP=yes on a network that you trust."
        )
    if limits.kind() is None:
        stop(
            "this machine offers no control groups to you, so one user could take all its memory: "
            "that is allowed on 127.0.0.1 only. systemd offers them, to root and to users."
        )


def take(folder):
    """The folder is ours alone, and this hub's as long as the lock that this returns is open."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            stop(
                f"HUB_FOLDER is {folder}, which is not yours alone, and it is to hold passwords and homes: "
                "give a folder that does not exist yet, or chmod 700 this one if nothing else uses it."
            )
        lock = open(folder / "lock", "w")  # noqa: SIM115 (open as long as the hub runs)
    except OSError as error:
        stop(f"HUB_FOLDER is {folder}, which cannot be used: {error.strerror}. Give another folder.")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        stop(f"another hub uses {folder}; end that one, or give another HUB_FOLDER.")
    return lock


def check_admin(name, database):
    """Nobody who signed up under a name becomes the administrator because the operator now asks for it."""
    if not database.exists():
        return
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as hub:
        try:
            taken = hub.execute("SELECT 1 FROM users_info WHERE username = ?", [name]).fetchone()
            admin = hub.execute("SELECT 1 FROM users WHERE name = ? AND admin", [name]).fetchone()
        except sqlite3.OperationalError:  # a hub that never came so far
            return
    if taken and not admin:
        stop(
            f"HUB_ADMIN is {name}, a name under which somebody has signed up: give another name, "
            "or let an administrator of this hub promote that user at /hub/admin first."
        )


def copy_book(folder):
    """What links clone in a sandbox: the commit that is checked out here, named as the published branch."""
    import yaml

    branch = yaml.safe_load((BOOK / "_config.yml").read_text())["repository"].get("branch", "main")
    copy = folder / "book.git"
    git = ["git", "-c", f"safe.directory={BOOK}", "-C", str(BOOK)]
    steps = [
        ["git", "init", "--quiet", "--bare", f"--initial-branch={branch}", str(copy)],
        ["git", "-C", str(copy), "config", "receive.shallowUpdate", "true"],
        [*git, "push", "--quiet", "--force", str(copy), f"HEAD:refs/heads/{branch}"],
    ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            stop(f"the copy of the book for links could not be made; git says: {done.stderr.strip()}")
    for path in (copy, *copy.rglob("*")):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))


def say_where(asked, folder, local):
    """The one thing to read at the start."""
    scheme = "https" if asked.get("HUB_CERTIFICATE") else "http"
    shown = f"[{asked['HUB_ADDRESS']}]" if ":" in asked["HUB_ADDRESS"] else asked["HUB_ADDRESS"]
    address = asked.get("HUB_SUBDOMAINS") or f"{scheme}://{shown}:{asked['HUB_PORT']}"
    print(f"hub: open {address}", flush=True)
    print(f"hub: accounts and homes are in {folder}")
    if not asked.get("HUB_ADMIN_PASSWORD"):
        print(f"hub: sign in as {asked['HUB_ADMIN']} with the password in {folder / 'admin-password'}")
    if not local and not asked.get("HUB_SUBDOMAINS"):
        print("hub: all users share one web origin, so a page of one can act for another who opens it")
        print("hub: HUB_SUBDOMAINS gives each an origin of their own (deploy/local/README.md)")
    if asked["HUB_SIGN_UP"] == "ask":
        print("hub: who signs up waits until an administrator has opened /hub/authorize")
    if limits.kind() is None:
        print("hub: there are no control groups for you here: memory and processes of users are NOT limited")
    sys.stdout.flush()


def run_hub(folder, lock):
    """Run JupyterHub until it ends; what ends us ends it, and it ends its sandboxes."""
    limits.sweep()
    command = ["jupyterhub", "--config", str(HERE / "jupyterhub_config.py")]
    hub = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "--", *command], cwd=folder, pass_fds=[lock.fileno()]
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: hub.terminate())
    return hub.wait()


if __name__ == "__main__":
    main()
