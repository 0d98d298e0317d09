"""The batch file under Slurm itself: a controller and two nodes, all on this machine, started for the test.

Both nodes have the machine's own address and ports of their own, and nobody else is asked who they are
(`auth/none`): good for a test that lives for a minute, and for nothing else.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from allranks import launch
from allranks.check import beyond_one_machine as beyond
from allranks.model import digits
from allranks.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
HOST = socket.gethostname().partition(".")[0]
NODES = [HOST, f"{HOST}-b"]
DEADLINE = 150
CONFIGURATION = """
ClusterName=two
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName={host}-b NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    """Why Slurm cannot be started here, or None."""
    missing = [name for name in ("slurmctld", "slurmd", "srun", "sbatch") if not shutil.which(name)]
    if missing:
        return f"no {missing[0]} here (Debian, Ubuntu: apt-get install slurmctld slurmd slurm-client)"
    if os.getuid():
        return "slurmd has to be root to start jobs"
    try:
        socket.gethostbyname(HOST)
    except OSError:
        return f"the name of this machine, {HOST}, has no address, and the agents meet at it"
    return None


pytestmark = pytest.mark.skipif(why_not() is not None, reason=why_not() or "Slurm is here")


def wait_until(true, what):
    until = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < until, f"{what} did not happen in {DEADLINE} s"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A function that runs a command of Slurm's, while two nodes are up."""
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    path = folder / "slurm.conf"
    path.write_text(CONFIGURATION.format(host=HOST, folder=folder, ports=[free_port() for _ in range(3)]))
    environment = {**os.environ, "SLURM_CONF": str(path), "OMP_NUM_THREADS": "1"}

    def run(*command):
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
        ).stdout

    commands = [["slurmctld", "-D"], *(["slurmd", "-D", "-N", node] for node in NODES)]
    with (folder / "log").open("w") as log:
        daemons = [
            subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            for command in commands
        ]
    try:
        wait_until(lambda: run("sinfo", "-h", "-o", "%t %D").strip() == "idle 2", "two idle nodes")
        yield run
    finally:
        run("scancel", "--user=root")
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(DEADLINE)


@pytest.mark.parametrize("distribution, nodes", [("block", [0, 0, 1, 1]), ("cyclic", [0, 1, 0, 1])])
def test_slurm_numbers_tasks_as_the_chapter_says(slurm, distribution, nodes):
    names = ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"]
    said = slurm(
        "srun", "-N2", "-n4", "--ntasks-per-node=2", f"--distribution={distribution}",
        "bash", "-c", "echo " + " ".join(f"${name}" for name in names),
    )  # fmt: skip
    given = sorted(line.split() for line in said.splitlines())
    supposed = beyond.slurm_tasks((2, 2), cyclic=distribution == "cyclic")
    assert given == [[task[name] for name in names] for task in supposed]
    assert [int(line[2]) for line in given] == nodes


def ranks_of(folder):
    """Process ids of the ranks that train into `folder`; not of the agents."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has ended
        if str(folder) in words and words[-2:] == [str(folder), ""] and "-u" in words:
            yield int(entry.name)


def test_the_batch_file_survives_a_killed_rank_with_the_same_loss(slurm, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "deploy" / "cluster")
    import train

    undisturbed = launch(train.train, digits(), str(tmp_path / "here"), 40, 10, world_size=2, timeout=120)[0]
    folder, output = tmp_path / "there", tmp_path / "output.txt"
    slurm(
        "sbatch", "--gpus-per-node=0", "--cpus-per-task=2", f"--output={output}",
        "deploy/cluster/slurm.sh", str(folder),
    )  # fmt: skip
    wait_until((folder / "10" / ".metadata").exists, "the first checkpoint")
    os.kill(next(iter(ranks_of(folder))), signal.SIGKILL)
    wait_until(lambda: not slurm("squeue", "-h").strip(), "the end of the job")
    first, loss = re.search(r"steps (\d+) to 40: loss ([\d.]+)", output.read_text()).groups()
    assert int(first) >= 10, "the restarted job began at a checkpoint"
    assert loss == f"{undisturbed[1]:.6f}"
