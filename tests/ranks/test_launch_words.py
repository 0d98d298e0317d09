"""What a reader is told about errors that look strange from a notebook: what it is, and what to do."""

import os
import resource
import signal
import threading

import pytest
import torch
import torch.distributed as dist

from allranks import launch
from allranks.launch import RankFailed, RanksTimedOut, hints, stacks

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")


def note(fn, *args, kind=RankFailed, **options):
    with pytest.raises(kind) as caught:
        launch(fn, *args, **{"world_size": 1, **options})
    return "\n".join(caught.value.__notes__)


def asks():
    input("yes or no?")


def debugs():
    breakpoint()


def joins():
    dist.init_process_group("gloo")


def fills(*_, **__):
    raise OSError(28, "No space left on device")


def shows():
    display(3)  # noqa: F821


@pytest.mark.parametrize(
    "fn, hint",
    [
        (asks, hints.NO_KEYBOARD),
        (debugs, hints.NO_KEYBOARD),
        (joins, hints.JOINED),
        (fills, hints.FULL),
        (shows, hints.NO_NOTEBOOK),
    ],
)
def test_a_hint_says_what_to_do(fn, hint):
    assert note(fn).endswith(f"\n  {hint}")


@pytest.mark.parametrize(
    "said, hint",
    [
        (
            "variable 'get_ipython', which f uses, cannot be sent to the ranks: TypeError: …",
            hints.NO_NOTEBOOK,
        ),
        ("variable 'exit', which f uses, cannot be sent to the ranks: TypeError: …", hints.RETURN),
        (
            "variable 'net', which f uses, cannot be sent: cannot pickle 'ConfigModuleInstance' object",
            hints.COMPILE,
        ),
        ("RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 64 vs 0", hints.FULL),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", hints.PROCESSES),
        ("RuntimeError: can't start new thread", hints.PROCESSES),
        ("OSError: [Errno 24] Too many open files", hints.FILES),
        ("OSError: [Errno 12] Cannot allocate memory", hints.MEMORY),
        ("argument 'w' cannot be sent to the ranks: … ._trait_values['comm'].lock", hints.WIDGET),
        ("ModuleNotFoundError: No module named 'cell'", hints.IMPORT),
        ("ValueError: an ordinary error", ""),
    ],
)
def test_the_table_knows_what_others_say(said, hint):
    assert hints.about(said) == hint


class Loader:
    def __init__(self):
        self.deep = {"x": [1, threading.Lock()]}


def test_the_member_that_cannot_be_pickled_is_named():
    assert note(lambda loader: loader, Loader(), kind=TypeError) == "it is at .deep['x'][1]"
    assert note(lambda: [Loader()]).endswith("\n  it is at [0].deep['x'][1]")


def test_grammar(monkeypatch):
    with pytest.raises(RankFailed, match="the result, an array, cannot be sent back"):

        class array:
            def __reduce__(self):
                raise TypeError("no")

        launch(array, world_size=1)


def f(x, timeout=5):
    return x, timeout


def test_a_keyword_that_launch_has_taken_from_the_function_is_said():
    with pytest.warns(
        UserWarning, match=r"^timeout=30 went to launch, but f has a parameter of this name too"
    ) as seen:
        assert launch(f, 1, timeout=30, world_size=1) == [(1, 5)]
    assert seen[0].filename == __file__


@pytest.mark.parametrize(
    "options, why",
    [
        ({}, "f: missing a required argument: 'x'. "),
        ({"x": 1, "nprocs": 3}, "f: got an unexpected keyword argument 'nprocs'. "),
    ],
)
def test_a_call_that_cannot_be_is_refused_before_anything_starts(options, why):
    with pytest.raises(TypeError) as caught:
        launch(f, **options)
    assert (
        str(caught.value) == f"{why}What launch takes itself is world_size, timeout, backend, rules, cluster."
    )


@pytest.mark.parametrize("setting, threads", [("4,2", 4), (" 3 ", 3), ("many", 1), ("0", 1)])
def test_any_setting_of_omp_num_threads_will_do(monkeypatch, setting, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert launch(torch.get_num_threads, world_size=1) == [threads]


def test_a_rank_that_is_stopped_is_said_to_be():
    def step():
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.barrier()

    with pytest.raises(RanksTimedOut) as caught:
        launch(step, world_size=2, timeout=1)
    assert "rank 1 is stopped by a signal; kill -CONT resumes it" in caught.value.__notes__[0]


def test_a_hint_is_given_once_and_a_full_disk_is_not_the_functions_fault(monkeypatch):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        return torch.zeros(100_000)

    assert note(limited).count(hints.FULL) == 1
    monkeypatch.setattr("torch.save", fills)
    with pytest.raises(TypeError, match=r"^the call cannot be sent to the ranks: ") as caught:
        launch(len, "ab", world_size=1)
    assert caught.value.__notes__ == [hints.FULL]


def test_a_model_in_ddp_that_comes_back_is_explained():
    with pytest.raises(TypeError) as caught:
        launch(lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1)), world_size=1)
    assert caught.value.__notes__ == [hints.WRAPPED]


def test_a_deleted_working_directory_is_said_to_be(monkeypatch, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    with pytest.raises(
        FileNotFoundError, match=r"^the working directory of this process was deleted: go to one"
    ):
        launch(len, "ab")


def test_torch_that_was_built_from_source_is_no_code_of_the_reader(monkeypatch):
    monkeypatch.setattr(stacks, "_torch", lambda: "/home/ada/pytorch/torch/")
    stacks.is_installed.cache_clear()
    file = "/home/ada/pytorch/torch/distributed/distributed_c10d.py"
    assert stacks.is_installed(file)
    seen = stacks.place(stacks.Frame(file, 7, "wait"))
    assert seen == "torch/distributed/distributed_c10d.py, line 7, in wait"
    stacks.is_installed.cache_clear()


@pytest.mark.parametrize(
    "file, installed",
    [
        (torch.__file__, True),
        (os.__file__, True),
        ("/home/ada/.local/lib/python3.11/site-packages/torch/nn/modules/linear.py", True),
        ("/usr/lib/python3/dist-packages/numpy/__init__.py", True),
        ("/usr/src/app/train.py", False),  # a container's Python may have the prefix /usr
        ("/tmp/ipykernel_7/1234.py", False),
    ],
)
def test_the_readers_own_lines_are_told_from_packages_wherever_those_are_installed(file, installed):
    assert stacks.is_installed(file) == installed
