"""The kernels of the tests."""

from pathlib import Path

import psutil
from kernel import Kernel
from kernel.sockets import sockets


def test_a_kernel_waits_for_no_port_and_leaves_no_file():
    """Ports are found free, and bound by the kernel seconds later: in a full run, one of five was taken."""
    with Kernel(timeout=600) as kernel:
        assert kernel.run("1 + 1").text == "2"
        bound = psutil.Process(kernel.pid).net_connections("inet")
        file = Path(kernel.manager.connection_file)
        assert len(list(file.parent.glob(f"{file.stem}*"))) == 6
    assert not [one for one in bound if one.laddr.port in kernel.manager.ports], bound
    assert not list(file.parent.glob(f"{file.stem}*"))


def test_two_kernels_never_share_a_file():
    assert len({sockets()["connection_file"] for _ in range(100)}) == 100
