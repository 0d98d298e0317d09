"""Settings and fixtures that tests share."""

import os

import cloudpickle
import pytest
from kernel import leftovers

os.environ.setdefault("MPLBACKEND", "Agg")
if (
    "ALLRANKS_ON_GPU" not in os.environ
):  # set by tools/gpu_check.py; otherwise a test is of the CPU everywhere
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
TOKEN = leftovers.mark()  # before any test starts a process


@pytest.fixture(autouse=True, scope="module")
def ranks_need_not_import_the_test(request):
    """Functions of a test travel to ranks by value, as from a notebook: they import neither it nor pytest."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture
def nothing_is_left_behind():
    yield
    assert leftovers.gone(lambda: leftovers.ranks(TOKEN)) == {}
    assert leftovers.directories(os.getpid()) == []
