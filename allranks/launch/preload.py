"""What does the fork server load before its first fork, and what does it do last? Only it imports this.

It ends when the kernel ends, however that ended, and so it can clean up after a kernel that was killed.
"""

import atexit
import contextlib
import importlib
import os
import signal

from allranks.launch import packing

os.setsid()  # Jupyter kills a kernel with its whole process group: this process must live to clean up
KERNEL = os.getppid()
MODULES = [
    "allranks.launch.rank",
    "cloudpickle",
    "torch",
    "torch.distributed",
    "torch._dynamo",  # DistributedDataParallel imports it: 0.7 s a rank if it is not here already
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
]


@atexit.register
def clean_up():
    """End the ranks that still live, with all that they started, and remove the files of their worlds."""
    pid = os.getpid()
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        for child in children.read().split():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(child), signal.SIGKILL)
    packing.remove_directories(KERNEL)
    os._exit(0)  # what else Python and torch would do at their end takes a second


for module in MODULES:
    importlib.import_module(module)
