"""Two people on one hub: one reads, kills, forks and fills memory, and the other does not notice."""

from __future__ import annotations

import signal
import sys
import time

import psutil
import pytest
from running_hub import PATIENCE, Hub, Person

from allranks.ports import free_port

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the hub's sandboxes are Linux's"),
    pytest.mark.stamped("hub"),
]
MEMORY, PROCESSES = "1500M", 400
SECRET = "alice-keeps-this-for-herself"

TRAIN = f"""
import os, pathlib, threading
os.environ["SECRET"] = "{SECRET}"
pathlib.Path.home().joinpath("notes.txt").write_text("{SECRET}")
import time, torch, torch.distributed as dist
from allranks import launch

def train(seconds):
    pathlib.Path("/proc/self/comm").write_text("training")
    until = time.monotonic() + seconds
    steps = 0
    while True:
        flag = torch.tensor([float(time.monotonic() < until)])
        dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        if not flag.item():
            return steps
        steps += 1
        time.sleep(0.05)
"""
STORE = f"""
store = dist.TCPStore("127.0.0.1", 0, is_master=True)
store.set("weights", "{SECRET}")
print(store.port)
"""
LISTENING = """
rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
print(*(int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"))
"""
RING = """
def ring():
    t = torch.ones(1)
    dist.all_reduce(t)
    return int(t)
print(launch(ring, world_size=4))
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    hub = Hub(tmp_path_factory.mktemp("hub"), HUB_MEMORY=MEMORY, HUB_PROCESSES=str(PROCESSES))
    yield hub
    hub.end()


def training_ranks(hub):
    """The processes that train, by the name that they take."""
    return {pid for pid, name in hub.of("alice").items() if name == "training"}


@pytest.fixture(scope="module")
def alice(hub, browser):
    """Four ranks of hers train all the time, and a TCP store holds what nobody else may read."""
    alice = Person(hub, browser, "alice")
    alice.enter()
    training = alice.open_kernel()
    assert alice.run(TRAIN, kernel=training) == ""
    assert alice.run("launch(train, 3000, timeout=3600)", seconds=4, kernel=training) == "still busy"
    said = alice.run(TRAIN + STORE)
    alice.port = int(said)
    hub.wait_for(lambda: len(training_ranks(hub)) == 4, "her ranks to train")
    alice.ranks = training_ranks(hub)
    return alice


@pytest.fixture(scope="module")
def bob(hub, browser):
    bob = Person(hub, browser, "bob")
    bob.enter()
    return bob


@pytest.fixture
def undisturbed(alice):
    """After what bob did, alice's kernel and her store answer, her ranks are the same and still train."""
    kernel = alice.kernel
    yield
    assert alice.run("print(store.get('weights').decode())") == SECRET + "\n"
    assert alice.run(RING) == "[4, 4, 4, 4]\n"
    assert alice.kernel == kernel
    assert all(psutil.pid_exists(pid) for pid in alice.ranks)


def test_nobody_sees_files_of_another(hub, alice, bob, undisturbed):
    places = ["/home", "/tmp", "/dev/shm", str(hub.folder), str(hub.folder / "users"), "/root", "/etc/shadow"]
    said = bob.run(f"""
import os, pathlib
print(os.listdir("/home"), os.listdir("/tmp"), os.listdir("/dev/shm"))
for place in {places[3:]!r}:
    try:
        print(sorted(os.listdir(place)) if os.path.isdir(place) else open(place).read())
    except OSError as error:
        print(type(error).__name__)
seen = []
for folder in ("/home", "/tmp", "/srv", "/var", "/etc"):
    for path, _, files in os.walk(folder):
        for file in files:
            try:
                seen += [file] * ({SECRET!r} in open(os.path.join(path, file), errors="ignore").read(100_000))
            except OSError:
                pass
print("found", [one for one in seen if not one.endswith((".json", ".sqlite", ".ipynb"))])
""")
    assert "['bob']" in said, said
    assert SECRET not in said
    assert "found []" in said, said
    assert "alice" not in said, said


def test_the_book_and_its_packages_cannot_be_changed(bob, undisturbed):
    said = bob.run("""
import allranks, sys, pathlib
for folder in (pathlib.Path(allranks.__file__).parent, sys.prefix, "/srv/book.git", "/usr"):
    try:
        pathlib.Path(folder, "mine").write_text("changed")
        print("changed", folder)
    except OSError as error:
        print(error.strerror)
""")
    assert "changed" not in said, said
    assert said.count("Read-only file system") + said.count("Permission denied") == 4, said


def test_nobody_sees_processes_of_another_or_their_environments(hub, alice, bob, undisturbed):
    said = bob.run("""
import os
found = 0
for entry in os.listdir("/proc"):
    if entry.isdigit():
        found += 1
        try:
            environment = open(f"/proc/{entry}/environ").read()
        except OSError:
            environment = ""
        print(open(f"/proc/{entry}/cmdline").read().replace(chr(0), " ")[:300], environment.count("SECRET="))
print("processes", found)
""")
    own = [line for line in said.splitlines() if line and not line.startswith("bwrap")]
    assert "processes" in said and int(said.split("processes ")[1]) <= len(hub.of("bob")), said
    assert not any(line.endswith(" 1") for line in own), said
    assert "alice" not in said, said


def test_nobody_reaches_ports_of_another_or_of_the_machine(hub, alice, bob, undisturbed):
    """In a network of his own, bob may listen on a number that she listens on too: those say nothing."""
    hers, his = ({int(port) for port in one.run(LISTENING).split()} for one in (alice, bob))
    of_the_hub = int(hub.address.rsplit(":", 1)[1])
    listening = hers - his
    assert alice.port in listening and len(listening) > 5, "of her store, her kernels and her ranks"
    assert of_the_hub not in his, "he sees the ports of the machine"
    said = bob.run(f"""
import socket
for port in ({of_the_hub}, *{listening}):
    with socket.socket() as one:
        one.settimeout(2)
        answers = one.connect_ex(("127.0.0.1", port)) == 0 and one.getsockname() != one.getpeername()
        print("open" if answers else "closed")  # one may by chance call from the port that it calls
import torch.distributed as dist, datetime
try:
    wait = datetime.timedelta(seconds=2)
    dist.TCPStore("127.0.0.1", {alice.port}, is_master=False, timeout=wait).get("weights")
    print("read")
except Exception as error:
    print("not read")
print(sorted(name for _, name in socket.if_nameindex()))
""")
    assert "open" not in said.split(), said
    assert "not read" in said and "['lo']" in said, said


def test_nobody_uses_the_server_of_another(hub, alice, bob):
    status = bob.context.request.get(f"{alice.own}/api/kernels").status
    assert status in (403, 404), status
    said = bob.run("""
import os, json, asyncio
from jupyterhub.httpclient import fetch
async def ask(path, method="GET"):
    try:
        got = await fetch(os.environ["JUPYTERHUB_API_URL"] + path, method=method,
                          headers={"Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"]})
        return got.status
    except Exception as error:
        return getattr(error, "status", None) or getattr(error, "code", None) or str(error)
for path in ("/users/bob", "/users/alice", "/proxy"):
    print(await ask(path))
print(await ask("/users/alice/server", "DELETE"))
""")
    answers = said.split()
    assert answers[0] == "200", said
    assert all(answer in ("403", "404") for answer in answers[1:]) and len(answers) == 4, said


def test_nobody_has_the_log_or_a_key_of_the_hub(hub, bob):
    said = bob.run("""
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    for number in (0, 1, 2):
        try:
            print(os.readlink(f"/proc/{pid}/fd/{number}").split(":")[0])
        except OSError:
            print("not shown")
print("capabilities", open("/proc/self/status").read().split("CapEff:")[1].split()[0])
print("new", open("/proc/self/status").read().split("NoNewPrivs:")[1].split()[0])
print("keys", [row for row in open("/proc/keys") if row.split()[7] != "keyring"])
""")
    assert set(said.split("capabilities")[0].split()) <= {"pipe", "/dev/null", "not", "shown"}, said
    assert "pipe" in said and "capabilities 0000000000000000\nnew 1\nkeys []\n" in said, said
    logged = [line for line in hub.said().splitlines() if " ServerApp] " in line]
    assert any(line.startswith("bob: ") for line in logged)
    assert all(line.startswith(("alice: ", "bob: ")) for line in logged), logged


def come_late(route):
    """What a busy machine does to a page."""
    time.sleep(0.5)
    route.continue_()


@pytest.mark.parametrize("name", ["..", "a b", "Alice"])
def test_no_name_is_taken_twice_or_leads_out_of_a_folder(hub, browser, alice, name):
    person = Person(hub, browser, name)
    person.context.route("**/hub/signup", come_late)
    person.ask_for_account()
    person.page.locator(".alert-danger:visible").wait_for()
    assert not person.page.get_by_text("The signup was successful").is_visible()
    person.context.close()
    assert {one.name for one in hub.folder.joinpath("users").iterdir()} <= {"alice", "bob"}


def test_who_fills_memory_loses_only_own_processes(bob, undisturbed):
    said = bob.run(
        """
import mmap
held = []
while True:
    held.append(b"x" * 50_000_000)
""",
        seconds=120,
    )
    assert said == "the kernel died" or "MemoryError" in said, said
    assert bob.run("print('again')") == "again\n"


def test_shared_memory_ends_before_the_memory_does(bob, undisturbed):
    said = bob.run("""
import os
try:
    with open("/dev/shm/large", "wb") as file:
        while True:
            file.write(bytes(10_000_000))
except OSError as error:
    print(error.strerror)
os.remove("/dev/shm/large")
""")
    assert said == "No space left on device\n"


def test_who_forks_without_end_comes_to_an_end(bob, undisturbed):
    said = bob.run("""
import os, signal, time
children = []
try:
    while len(children) < 5_000:
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        children.append(pid)
except OSError as error:
    print(error.strerror)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print(len(children))
""")
    why, count = said.strip().splitlines()[-2:]
    assert why == "Resource temporarily unavailable", said
    assert 10 < int(count) < PROCESSES, said


def test_who_kills_all_that_can_be_seen_kills_only_the_own_sandbox(hub, bob, undisturbed):
    before = hub.of("bob")
    said = bob.run("""
import glob, os, signal
[server] = glob.glob("/*/allranks-hub-*/users/*/server")
os.remove(server)  # the next server has to find its socket's place free
os.mkdir(server)
open(f"{server}/in-the-way", "w").close()
os.kill(-1, signal.SIGKILL)
print("alive")
""")
    assert said in ("alive\n", "the kernel died", "alive\nthe kernel died"), said
    hub.wait_for(lambda: hub.has_ended(before), "bob's sandbox to end")
    bob.start_again()
    assert bob.run("print('back')") == "back\n"


def test_no_process_survives_the_end_of_a_server(hub, bob, undisturbed):
    said = bob.run("""
import subprocess, sys
daemon = '''
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("/tmp/daemon", "w").write(str(os.getpid()))
        time.sleep(600)
'''
subprocess.Popen([sys.executable, "-c", daemon], start_new_session=True)
import os, time
while not os.path.exists("/tmp/daemon") or not open("/tmp/daemon").read():
    time.sleep(0.1)
print(open("/tmp/daemon").read().isdigit())
""")
    assert said == "True\n", said
    before = hub.of("bob")
    assert any("python" in command for command in before.values())
    status = bob.context.request.get(f"{hub.address}/hub/logout").status
    assert status == 200, status
    hub.wait_for(lambda: hub.has_ended(before), "bob's processes to end")
    assert hub.of("bob") == {}


def test_ranks_that_still_run_end_with_the_hub(hub, alice):
    everybody = hub.processes()
    assert alice.ranks < set(everybody)
    hub.process.send_signal(signal.SIGTERM)
    hub.process.wait(PATIENCE)
    hub.wait_for(lambda: hub.has_ended(everybody), "all to end")


def test_nothing_is_left_of_a_hub_that_was_killed_and_the_next_one_starts(tmp_path, request):
    hub = Hub(tmp_path)
    request.addfinalizer(hub.end)
    everybody = hub.processes()
    of_the_hub = next(pid for pid, command in everybody.items() if "jupyterhub_config.py" in command)
    assert any("configurable-http-proxy" in command for command in everybody.values())
    psutil.Process(of_the_hub).kill()
    hub.process.wait(PATIENCE)
    hub.wait_for(lambda: hub.has_ended(everybody), "all to end")
    hub.end()
    again = Hub(tmp_path, HUB_PORT=hub.address.rsplit(":", 1)[1])
    again.end()


def test_with_subdomains_a_page_of_one_user_cannot_act_for_another(tmp_path, browser, request):
    port = str(free_port())
    above = f"http://localhost:{port}"  # browsers find every name below localhost on their own machine
    hub = Hub(tmp_path, HUB_PORT=port, HUB_SUBDOMAINS=above)
    request.addfinalizer(hub.end)
    hub.address = above
    alice = Person(hub, browser, "alice")
    alice.sign_up()
    alice.sign_in()
    alice.page.wait_for_url(f"http://alice.localhost:{port}/user/alice/lab**")
    own = f"http://alice.localhost:{port}/user/alice/api/status"
    read = f"fetch('{own}', {{credentials: 'include'}}).then(() => 'answered', error => error.name)"
    alice.page.goto(own)
    assert alice.page.evaluate(read) == "answered"
    assert "_xsrf" in alice.page.evaluate("document.cookie")
    bobs = f"http://bob.localhost:{port}/"
    alice.page.route(
        f"{bobs}**", lambda route: route.fulfill(body="what bob likes", content_type="text/html")
    )
    alice.page.goto(f"{bobs}user/bob/")
    assert alice.page.evaluate("location.hostname") == "bob.localhost"
    assert alice.page.evaluate(read) == "TypeError"
    look = f"{{ const other = window.open('{own}'); await new Promise(done => setTimeout(done, 2000)); "
    look += "try { return other.document.cookie } catch (error) { return error.name } }"
    assert alice.page.evaluate(f"async () => {look}") == "SecurityError"
    alice.context.close()
