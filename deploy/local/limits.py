"""How much of this machine can one user take? What a control group allows: memory, processes, CPU shares.

Where systemd runs, it makes the group (a scope). In a root user's container there is none; the group is
then a folder in the kernel's first version of control groups, if that is what it has.
"""

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
LIMITS = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": None}  # cpu: equal shares


def kind():
    """How groups are made on this machine: 'systemd', 'folders', or None if they cannot be."""
    bus = os.geteuid() == 0 or "XDG_RUNTIME_DIR" in os.environ  # a user's own systemd answers there
    if bus and Path("/run/systemd/system").exists() and shutil.which("systemd-run"):
        return "systemd"
    if os.geteuid() == 0 and all(os.access(ROOT / name, os.W_OK) for name in LIMITS):
        return "folders"
    return None


def sweep():
    """Remove the empty groups of hubs that ended before they could."""
    for name in LIMITS if kind() == "folders" else ():
        for folder in (ROOT / name).glob("allranks-*"):
            with contextlib.suppress(OSError):  # busy: another hub runs
                folder.rmdir()


class Group:
    """The control group of one sandbox. `name` is its own on this machine; `memory` is in bytes."""

    def __init__(self, name, memory, processes):
        self.name = "allranks-" + re.sub(r"[^\w-]", lambda match: f"_{ord(match[0]):x}_", name)
        self.kind = kind()
        self.memory, self.processes = memory, processes
        self.folders = {c: ROOT / c / self.name for c in LIMITS} if self.kind == "folders" else {}

    def make(self):
        """Create the group, where that is ours to do."""
        values = {"memory": self.memory, "pids": self.processes}
        for controller, folder in self.folders.items():
            folder.mkdir(exist_ok=True)
            if file := LIMITS[controller]:
                (folder / file).write_text(str(values[controller]))

    def command(self):
        """What stands before a command that systemd shall put into a group."""
        if self.kind != "systemd":
            return []
        user, where = [], []
        if os.geteuid() != 0:  # JupyterHub gives a server none of the hub's environment
            user, where = ["--user"], ["env", f"XDG_RUNTIME_DIR={os.environ['XDG_RUNTIME_DIR']}"]
        limits = [f"MemoryMax={self.memory}", "MemorySwapMax=0", f"TasksMax={self.processes}"]
        properties = [word for limit in limits for word in ("-p", limit)]
        return [*where, "systemd-run", "--scope", "--quiet", "--collect", *user, *properties, "--"]

    def enter(self):
        """Put this process into the group; its children are born there."""
        for folder in self.folders.values():
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self, patience=5):
        """Remove the group when the last of its processes has ended: within `patience` seconds, or not."""
        until = time.monotonic() + patience
        for folder in self.folders.values():
            while folder.exists() and time.monotonic() < until:
                with contextlib.suppress(OSError):  # busy: a process is still there
                    folder.rmdir()
                    break
                time.sleep(0.05)
