"""What is left of the ranks that a test started? Whatever carries the token of its environment."""

import glob
import os
import time

from allranks.launch import packing

TOKEN = "ALLRANKS_TEST_TOKEN"


def mark():
    """Mark this process, and return the token that all it starts from now on will carry.

    A worker of pytest-xdist does not keep the token of the process that started it and its fellows.
    """
    token = f"{os.getpid()}-{time.time_ns()}"
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ[TOKEN] = token
    return os.environ.setdefault(TOKEN, token)


def processes(token):
    """Return `{pid: command line}` of the processes that carry `token`, without this one."""
    found = {}
    for directory in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{directory}/environ", "rb") as environ, open(f"{directory}/cmdline", "rb") as command:
                if f"{TOKEN}={token}".encode() in environ.read():
                    found[int(directory[6:])] = command.read().replace(b"\0", b" ").decode()
        except OSError:  # it has just ended, or it is not ours to see
            continue
    found.pop(os.getpid(), None)
    return found


def ranks(token):
    """Return the processes that carry `token`, but for this process's own fork server and its helper."""
    servers = ("multiprocessing.resource_tracker", "allranks.launch.keeper")
    return {
        pid: command
        for pid, command in processes(token).items()
        if _parent(pid) != os.getpid() or not any(server in command for server in servers)
    }


def directories(pid):
    """Return the directories that launches of process `pid` have left."""
    return glob.glob(os.path.join(packing.SHARED_MEMORY, f"allranks-{pid}-*"))


def gone(look, seconds=20.0):
    """Return what `look()` still finds after `seconds`, empty as soon as it finds nothing."""
    deadline = time.monotonic() + seconds
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return None
