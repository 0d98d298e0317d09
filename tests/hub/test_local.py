"""What `make hub` refuses before it starts, and what a user's sandbox is told: no hub runs here."""

import importlib
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from allranks.ports import free_port

LOCAL = Path(__file__).resolve().parents[2] / "deploy" / "local"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the hub's sandboxes are Linux's")


@pytest.fixture
def module(monkeypatch):
    """A function that imports a module of deploy/local."""
    monkeypatch.syspath_prepend(str(LOCAL))
    return importlib.import_module


@pytest.fixture
def start(module):
    return module("start")


@pytest.fixture
def spawner(module, tmp_path):
    pytest.importorskip("jupyterhub", reason="the sandbox is a spawner of JupyterHub's")
    spawner = module("sandbox").SandboxSpawner(folder=str(tmp_path), sockets=str(tmp_path), mem_limit="1G")
    spawner.user = SimpleNamespace(name="bob", escaped_name="bob", id=1)
    return spawner


ASKED = {
    "HUB_ADDRESS": "127.0.0.1",
    "HUB_PORT": "8000",
    "HUB_MEMORY": "4G",
    "HUB_PROCESSES": "500",
    "HUB_ADMIN": "admin",
}


@pytest.mark.parametrize(
    "given, said",
    [
        ({"HUB_MEMORY": "four"}, "give a number and K, M, G or T"),
        ({"HUB_MEMORY": "0G"}, "at least 512M"),
        ({"HUB_MEMORY": "511M"}, "at least 512M"),
        ({"HUB_PORT": "0"}, "at least 1"),
        ({"HUB_PORT": "70000"}, "up to 65535"),
        ({"HUB_PROCESSES": "10"}, "at least 100"),
        ({"HUB_USERS": "-3"}, "at least 1"),
    ],
)
def test_a_number_that_cannot_be_is_refused(start, given, said):
    with pytest.raises(SystemExit, match=re.escape(said)):
        start.check_numbers(ASKED | given)


@pytest.mark.parametrize("memory", ["512M", "0.5G", "1500M", "4G", "1T"])
def test_a_memory_that_can_be_is_taken(start, memory):
    start.check_numbers(ASKED | {"HUB_MEMORY": memory})


@pytest.mark.parametrize("address", ["example.org", "256.0.0.1", "*", "127.0.0.1:80"])
def test_an_address_that_is_no_number_is_refused(start, address):
    with pytest.raises(SystemExit, match="give a number such as"):
        start.check_address(ASKED | {"HUB_ADDRESS": address})


def test_an_address_in_use_or_not_of_this_machine_is_refused(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for given in ({"HUB_PORT": str(taken.getsockname()[1])}, {"HUB_ADDRESS": "192.0.2.1"}):
            with pytest.raises(SystemExit, match="Set HUB_ADDRESS or HUB_PORT"):
                start.check_address(ASKED | given)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"HUB_ADMIN": "Ada"}, "small letters"),
        ({"HUB_ADMIN": "../x"}, "small letters"),
        ({"HUB_ADMIN": "a" * 65}, "small letters"),
        ({"HUB_ADMIN_PASSWORD": "admin"}, "everybody tries first|needs 12"),
        ({"HUB_ADMIN_PASSWORD": "abababababababab"}, "repeats"),
        ({"HUB_CERTIFICATE": "/etc/hostname"}, "belong together"),
        ({"HUB_SIGN_UP": "yes"}, "say open, or ask"),
        ({"HUB_SUBDOMAINS": "hub.example.org"}, "such as https://hub.example.org"),
        ({"HUB_SUBDOMAINS": "https://hub.example.org/path"}, "such as https://hub.example.org"),
    ],
)
def test_what_is_unsafe_is_refused_even_on_loopback(start, given, said):
    with pytest.raises(SystemExit, match=said):
        start.check_safety(ASKED | given, local=True)


def test_passwords_do_not_travel_in_clear_unasked(start):
    with pytest.raises(SystemExit, match="passwords would travel in clear"):
        start.check_safety(ASKED | {"HUB_ADDRESS": "0.0.0.0"}, local=False)


@pytest.mark.parametrize("local, sign_up", [(True, "open"), (False, "ask")])
def test_sign_up_is_open_only_where_nobody_else_comes(start, monkeypatch, local, sign_up):
    monkeypatch.setattr(start.limits, "kind", lambda: "systemd")
    asked = ASKED | {"HUB_PLAIN_HTTP": "yes"}
    start.check_safety(asked, local=local)
    assert asked["HUB_SIGN_UP"] == sign_up
    asked = ASKED | {"HUB_SIGN_UP": "ask"}
    start.check_safety(asked, local=True)
    assert asked["HUB_SIGN_UP"] == "ask"


def test_a_folder_that_others_can_enter_is_refused(start, tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(SystemExit, match="not yours alone"):
        start.take(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_is_refused(start, tmp_path):
    tmp_path.joinpath("file").touch()
    with pytest.raises(SystemExit, match="Not a directory"):
        start.take(tmp_path / "file" / "hub")


def test_two_hubs_do_not_share_a_folder(start, tmp_path):
    lock = start.take(tmp_path / "hub")
    with pytest.raises(SystemExit, match="another hub uses"):
        start.take(tmp_path / "hub")
    lock.close()
    start.take(tmp_path / "hub").close()


def test_who_signed_up_does_not_become_administrator_by_name(start, tmp_path):
    database = tmp_path / "hub.sqlite"
    start.check_admin("bob", database)
    with sqlite3.connect(database) as hub:
        hub.execute("CREATE TABLE users (name, admin)")
        hub.execute("CREATE TABLE users_info (username)")
        hub.execute("INSERT INTO users_info VALUES ('bob'), ('admin')")
        hub.execute("INSERT INTO users VALUES ('bob', 0), ('admin', 1)")
    hub.close()
    with pytest.raises(SystemExit, match="somebody has signed up"):
        start.check_admin("bob", database)
    start.check_admin("admin", database)
    start.check_admin("carol", database)


def test_a_link_in_place_of_the_own_socket_leads_nowhere(spawner, tmp_path):
    """The proxy reaches a user's server through that user's folder: a link there must not name others."""
    for program in ("bwrap", "socat"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: tools/hub.sh installs it")
    elsewhere = tmp_path / "elsewhere"
    secret = socket.socket(socket.AF_UNIX)
    secret.bind(str(elsewhere))
    secret.listen()
    elsewhere.chmod(0o666)

    threading.Thread(target=tell, args=(secret, b"secret"), daemon=True).start()
    spawner.place.mkdir(parents=True)
    os.chown(spawner.place, spawner.uid, -1)
    port = free_port()
    way_in = subprocess.Popen(spawner.way_in("127.0.0.1", port), stderr=subprocess.DEVNULL)
    try:
        said = {}
        own = socket.socket(socket.AF_UNIX)
        own.bind(str(spawner.place / "server"))
        own.listen()
        os.chown(spawner.place / "server", spawner.uid, -1)
        threading.Thread(target=tell, args=(own, b"own"), daemon=True).start()
        said["own"] = read(port)
        (spawner.place / "server").unlink()
        (spawner.place / "server").symlink_to(elsewhere)
        said["link"] = read(port)
    finally:
        way_in.kill()
        way_in.wait()
        for one in (own, secret):
            one.shutdown(socket.SHUT_RDWR)
            one.close()
    assert said == {"own": b"own", "link": b""}


def tell(listening, what):
    """Say `what` to everybody who comes, until the socket is shut."""
    while True:
        try:
            came, _ = listening.accept()
        except OSError:
            return
        with came:
            came.sendall(what)


def read(port, patience=20):
    """What a server at `port` says first, once something listens there."""
    until = time.monotonic() + patience
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=patience) as one:
                return one.recv(100)
        except ConnectionRefusedError:
            assert time.monotonic() < until, f"nothing listened for {patience} s"
            time.sleep(0.05)


def test_the_number_of_a_process_is_not_kept_for_the_next_hub(spawner):
    spawner.pid = os.getpid()
    assert "pid" not in spawner.get_state()


def test_keys_and_certificates_of_the_machine_are_apart(spawner):
    words = spawner.sandbox()
    assert "/etc/ssl/certs" in words
    assert not {"/etc/ssl", "/etc/pki", "/etc"} & set(
        words[i + 1] for i, w in enumerate(words) if "bind" in w
    )


def test_without_root_nobody_makes_namespaces_in_a_sandbox(spawner, monkeypatch):
    """There a user's number is the operator's, who may change the limits of the own control group."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    words = spawner.sandbox()
    assert {"--unshare-user", "--disable-userns"} <= set(words)
    assert "setpriv" not in words


def test_without_root_systemd_is_found_where_the_operator_has_it(module, monkeypatch):
    limits = module("limits")
    monkeypatch.setattr(limits, "kind", lambda: "systemd")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    command = limits.Group("bob", 2**30, 500).command()
    assert command[:4] == ["env", "XDG_RUNTIME_DIR=/run/user/1000", "systemd-run", "--scope"]
    assert "--user" in command and f"MemoryMax={2**30}" in command


@pytest.mark.parametrize(
    "name", ["..", "../x", "a b", "Alice", "ａlice", "a\nb", "alice\n", "-x", "a" * 65, ""]
)
def test_a_name_that_is_no_file_name_is_no_user(name):
    pattern = re.search(r'username_pattern = r"(.*?)"', (LOCAL / "jupyterhub_config.py").read_text())[1]
    assert not re.match(pattern, name)
    assert re.match(pattern, "alice.b-1_c@example.org")


def test_five_wrong_passwords_lock_a_name_for_ten_minutes_and_each_further_one_again():
    native = pytest.importorskip("nativeauthenticator", reason="the hub signs people in with it")
    config = (LOCAL / "jupyterhub_config.py").read_text()
    settings = re.findall(
        r"HubAuthenticator\.(allowed_failed_logins|seconds_before_next_try) = (\d+)", config
    )
    sign_in = native.NativeAuthenticator(
        add_new_table=False, **{name: int(value) for name, value in settings}
    )
    for _ in range(4):
        sign_in.add_login_attempt("bob")
    assert not sign_in.is_blocked("bob")
    for _ in range(2):
        sign_in.add_login_attempt("bob")
        sign_in.login_attempts["bob"]["time"] -= timedelta(seconds=590)
        assert sign_in.is_blocked("bob")
        sign_in.login_attempts["bob"]["time"] -= timedelta(seconds=12)
        assert not sign_in.is_blocked("bob")
