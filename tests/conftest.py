"""Settings and fixtures that tests share."""

import os
import random
import sys

import cloudpickle
import hypothesis
import pytest
import stamps
from hypothesis.internal.conjecture.providers import Constants, HypothesisProvider
from kernel import leftovers

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # tests run side by side: threads that spin cost three times the work
# A first launch waits until the fork server has loaded what ranks import: their deadlines are without it.
os.environ.setdefault("ALLRANKS_STANDBY", "0")
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
STAMPED = "passed on these very inputs (tests/stamps.json); runs every night, and with --every-test"
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


def pytest_addoption(parser):
    """`pytest --every-test tests`"""
    parser.addoption("--every-test", action="store_true", help="run what only every night runs, too")


def pytest_configure(config):
    """`stamped("hub")`, `stamped("page", "book/claims")`: inputs; `stamped(None)`: runs always.

    Without it, a test looks at the inputs of its file, if that has a hash of its own (`stamps.BY_FILE`).
    """
    config.addinivalue_line("markers", "stamped(group): skipped while its inputs are those it passed on")


def page_of(item):
    """The page that a test looks at: the one that its parameters name, without the ending."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    pages = (one.removesuffix(".html") for one in values if str(one).endswith(".html"))
    return next(pages, None)


def pytest_collection_modifyitems(config, items):
    """Long files first; takes effect with `-n 3 --dist loadfile --no-loadscope-reorder`. Skip what holds."""
    for item in items if not config.getoption("every_test") else ():
        mark = item.get_closest_marker("stamped")
        group, *page = mark.args if mark else (stamps.by_file(item.path),)
        if group and stamps.unchanged(group, *(page or [page_of(item)])):
            item.add_marker(pytest.mark.skip(reason=STAMPED))
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A test draws the same at every run, whatever ran before it; `tools/draws.py` looks for other draws."""
    random.seed(item.nodeid)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


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
    assert leftovers.gone(lambda: leftovers.directories(os.getpid())) == []
