"""How nbval runs the notebooks: kernels on Unix sockets, and NCCL's rules if asked.

With ALLRANKS_RULES=nccl every `launch` holds its ranks to the rules (see
`allranks.nccl`). The right answer is the stored one still, but what fails may say
so in other words.
"""

import os

import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager
from kernel.sockets import sockets


def on_sockets(**given):
    """The manager of a kernel to which no other process can take the ports."""
    return KernelManager(**given, **sockets())


def pytest_configure():
    """Give nbval, which has no setting for it, kernels on Unix sockets."""
    nbval.kernel.KernelManager = on_sockets


def failures(outputs):
    """How many of a cell's outputs are an error, or the ✗ of a check."""
    return sum(
        one["output_type"] == "error" or "✗" in one.get("text", "")
        for one in outputs
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    fails = bool(
        os.environ.get("ALLRANKS_RULES") and failures(item.cell.get("outputs", []))
    )
    item.options["check"] &= not fails
    result = yield
    if fails:
        assert failures(item.test_outputs), (
            "this cell shows a failure, and under the rules it does not fail"
        )
    return result
