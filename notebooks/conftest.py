"""What is a notebook's right answer under NCCL's rules? The stored one.

But what fails may say so in other words. With ALLRANKS_RULES=nccl every `launch`
of a notebook holds its ranks to the rules (see `allranks.nccl`).
"""

import os

import pytest


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
