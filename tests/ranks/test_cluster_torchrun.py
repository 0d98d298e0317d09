"""Two torchrun agents, as on two machines: a rank is killed, the job goes on from its checkpoint, same loss.

Each agent has a network namespace of its own, joined by a virtual cable, where the system allows that (root,
iproute2); elsewhere both are on the loopback interface.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allranks import launch
from allranks.model import digits

CLUSTER = Path(__file__).resolve().parents[2] / "deploy" / "cluster"
STEPS, EVERY, DEADLINE = 9, 3, 600
SCRIPT = f"""
import os, sys, time
sys.path.insert(0, {str(CLUSTER)!r})
import train, torch.distributed as dist
from allranks import launch
from allranks.model import digits
begins = not os.path.exists(sys.argv[1] + "/{EVERY}/.metadata")
stay = lambda step: time.sleep({DEADLINE} if begins and step == {EVERY} else 0)  # until a rank is killed
found = launch(train.train, digits(), sys.argv[1], {STEPS}, {EVERY}, after_step=stay, timeout={DEADLINE})
if dist.get_rank() == 0:
    print("<first %d, loss %.6f>" % found[0])
"""


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True)


@contextlib.contextmanager
def machines():
    """For two machines: the words that run a command there, its address, and its network interface."""
    names = [f"allranks-{os.getpid()}-{m}" for m in (0, 1)]
    try:
        with contextlib.ExitStack() as made:
            for name in names:
                ip("netns", "add", name)
                made.callback(ip, "netns", "delete", name)
            ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "cable", "netns", names[1])
            for m, name in enumerate(names):
                ip("-n", name, "address", "add", f"10.77.0.{m + 1}/24", "dev", "cable")
                ip("-n", name, "link", "set", "cable", "up")
                ip("-n", name, "link", "set", "lo", "up")
            yield [(["ip", "netns", "exec", n], f"10.77.0.{m + 1}", "cable") for m, n in enumerate(names)]
    except (OSError, subprocess.CalledProcessError) as refused:
        print(f"no network namespaces here, both agents are on the loopback interface: {refused}")
        yield [([], "127.0.0.1", "lo")] * 2


def agent(number, prefix, address, interface, master, port, script, folder):
    command = [
        *prefix, sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1",
        "--rdzv-backend=c10d", f"--rdzv-endpoint={master}:{port}", "--rdzv-id=allranks", "--max-restarts=2",
        f"--rdzv-conf=is_host={int(number == 0)}", f"--local-addr={address}", str(script), str(folder),
    ]  # fmt: skip
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": interface,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # else the restarted ranks find old addresses, and hang
    }
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip


def child_of(pid):
    """The one process that `pid` has started."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def wait_for(path, processes):
    until = time.monotonic() + DEADLINE
    while not path.exists():
        assert all(p.poll() is None for p in processes), [p.communicate()[0] for p in processes]
        assert time.monotonic() < until, f"{path.name} was not written in {DEADLINE} s"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The first step and the last loss of the same training on ranks that nothing happens to."""
    sys.path.insert(0, str(CLUSTER))
    import train

    folder = str(tmp_path_factory.mktemp("here"))
    return launch(train.train, digits(), folder, STEPS, EVERY, world_size=2)[0]


def test_the_script_of_a_cluster_trains_on_ranks_that_launch_starts(undisturbed):
    first, loss = undisturbed
    assert first == 0 and 0 < loss < 2.2, "ten digits guessed alike cost log 10 = 2.3"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_rank_costs_the_steps_since_the_checkpoint_and_not_the_result(tmp_path, undisturbed):
    script, folder = tmp_path / "script.py", tmp_path / "there"
    script.write_text(SCRIPT)
    with machines() as places, socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # held, and yet free for an agent
        held.bind(("127.0.0.1", 0))
        master = places[0][1], held.getsockname()[1]
        agents = [agent(m, *place, *master, script, folder) for m, place in enumerate(places)]
        try:
            wait_for(folder / str(EVERY) / ".metadata", agents)
            os.kill(child_of(agents[1].pid), signal.SIGKILL)
            said = "".join(one.communicate(timeout=DEADLINE)[0] for one in agents)
        finally:
            for one in agents:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.pid, signal.SIGKILL)
    first, loss = re.search(r"<first (\d+), loss ([\d.]+)>", said).groups()
    assert int(first) >= EVERY, "the restarted job began at a checkpoint"
    assert loss == f"{undisturbed[1]:.6f}"
