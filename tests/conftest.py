"""Settings and fixtures that tests share."""

import os

import cloudpickle
import hypothesis
import pytest
from hypothesis.internal.conjecture.providers import Constants, HypothesisProvider
from kernel import leftovers

os.environ.setdefault("MPLBACKEND", "Agg")
if (
    "ALLRANKS_ON_GPU" not in os.environ
):  # set by tools/gpu_check.py; otherwise a test is of the CPU everywhere
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)  # every night
hypothesis.settings.load_profile("same")
# Hypothesis draws also constants of the modules that are loaded, so an example depends on the tests before.
HypothesisProvider._local_constants = Constants()
TOKEN = leftovers.mark()  # before any test starts a process
FIRST = (  # what takes longest: at the end one of them would keep one worker busy alone
    "test_launch_ray.py",
    "test_check_lab_03.py",
    "test_gpu_check.py",
    "test_launch_kernel.py",
    "test_check_lab_02.py",
    "test_check_lab_04.py",
    "test_cluster_torchrun.py",
    "test_both_pythons.py",
)


def pytest_collection_modifyitems(items):
    """Long files first; takes effect with `-n 3 --dist loadfile --no-loadscope-reorder`."""
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


@pytest.fixture(autouse=True, scope="module")
def ranks_need_not_import_the_test(request):
    """Functions of a test travel to ranks by value, as from a notebook: they import neither it nor pytest."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(autouse=True, scope="module")
def parallel_code_keeps_to_nccls_rules(request):
    """The tests of `allranks.parallel` put all their ranks under NCCL's rules."""
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__.startswith("test_parallel_"):
            patch.setenv("ALLRANKS_RULES", "nccl")
        yield


@pytest.fixture
def nothing_is_left_behind():
    yield
    assert leftovers.gone(lambda: leftovers.ranks(TOKEN)) == {}
    assert leftovers.directories(os.getpid()) == []
