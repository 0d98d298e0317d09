"""What is not possible is said before anything starts."""

import functools
import threading

import pytest
import torch
import torch.distributed as dist

from allranks import launch
from allranks.launch import plan

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")


def average(x):
    t = torch.full((3,), float(dist.get_rank()) + x)
    dist.all_reduce(t, op=dist.ReduceOp.AVG)
    return t


@pytest.mark.parametrize(
    "wrong, kind, message",
    [
        (
            {"world_size": 0},
            ValueError,
            "world_size=0: a world has 1 to 64 ranks here. Every rank is a process on this one machine, "
            "connected to every other; a larger world needs several machines and torchrun.",
        ),
        ({"world_size": -1}, ValueError, "world_size=-1: a world has 1 to 64 ranks here."),
        ({"world_size": 65}, ValueError, "world_size=65: a world has 1 to 64 ranks here."),
        ({"world_size": 2.0}, TypeError, "world_size=2.0 is not a whole number of ranks."),
        ({"world_size": "4"}, TypeError, "world_size='4' is not a whole number of ranks."),
        (
            {"timeout": 0},
            ValueError,
            "timeout=0: give a number of seconds above 0; every launch has a deadline.",
        ),
        ({"timeout": None}, ValueError, "timeout=None: give a number of seconds above 0"),
        ({"timeout": float("inf")}, ValueError, "timeout=inf: give a number of seconds above 0"),
        ({"backend": "mpi"}, ValueError, "backend='mpi' is not one of 'nccl' (a GPU per rank), 'gloo'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_an_impossible_request_is_refused(wrong, kind, message):
    with pytest.raises(kind) as caught:
        launch(average, 1.0, **wrong)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "gpus, world_size, backend, expected",
    [
        (0, 4, None, ("gloo", (None,) * 4)),
        (4, 4, None, ("cpu:gloo,cuda:nccl", (0, 1, 2, 3))),
        (8, 2, None, ("cpu:gloo,cuda:nccl", (0, 1))),
        (1, 4, None, ("gloo", (None,) * 4)),
        (1, 3, "cuda:gloo", ("cpu:gloo,cuda:gloo", (0, 0, 0))),
        (4, 2, "gloo", ("gloo", (None, None))),
        (2, 2, "nccl", ("cpu:gloo,cuda:nccl", (0, 1))),
    ],
)
def test_a_rank_gets_a_gpu_of_its_own_where_there_are_enough(
    monkeypatch, gpus, world_size, backend, expected
):
    monkeypatch.setattr(plan, "_count_gpus", lambda: gpus)
    monkeypatch.delenv(plan.SHARE, raising=False)
    assert plan.make_plan(world_size, backend)[1:3] == expected


@pytest.mark.parametrize(
    "gpus, world_size, backend, expected",
    [
        (1, 4, None, ("cpu:gloo,cuda:nccl", (0, 0, 0, 0))),
        (2, 3, "nccl", ("cpu:gloo,cuda:nccl", (0, 1, 0))),
        (1, 2, "gloo", ("gloo", (None, None))),
        (0, 2, None, ("gloo", (None, None))),
    ],
)
def test_ranks_share_a_gpu_under_nccl_where_its_own_variable_allows_it(
    monkeypatch, gpus, world_size, backend, expected
):
    monkeypatch.setattr(plan, "_count_gpus", lambda: gpus)
    monkeypatch.setenv(plan.SHARE, "1")
    assert plan.make_plan(world_size, backend)[1:3] == expected


@pytest.mark.parametrize(
    "gpus, backend, message",
    [
        (
            1,
            "nccl",
            "backend='nccl' needs one GPU per rank: 4 ranks were requested and 1 GPU is here (NCCL refuses "
            "two ranks on one GPU). Ask for fewer ranks, or use backend='gloo' for ranks on the CPU, or "
            "let ranks share a GPU: backend='cuda:gloo', or NCCL 2.30 or later with "
            "NCCL_MULTI_RANK_GPU_ENABLE=1.",
        ),
        (
            0,
            "cuda:gloo",
            "backend='cuda:gloo' puts ranks on GPUs, and there is none here. Use backend='gloo'.",
        ),
    ],
)
def test_a_backend_without_its_gpus_is_refused(monkeypatch, gpus, backend, message):
    monkeypatch.setattr(plan, "_count_gpus", lambda: gpus)
    with pytest.raises(ValueError) as caught:
        launch(average, 1.0, backend=backend)
    assert str(caught.value) == message


def test_a_call_instead_of_a_function_is_refused():
    with pytest.raises(TypeError) as caught:
        launch(average(1.0) if dist.is_initialized() else 7)
    assert str(caught.value) == (
        "launch needs a function, and was given int: "
        "write launch(f, x) to run f(x) on every rank, not launch(f(x))."
    )


def test_a_generator_or_coroutine_function_is_refused():
    def generator():
        yield 1

    async def coroutine():
        return 1

    for fn in (generator, coroutine, functools.partial(coroutine)):
        with pytest.raises(TypeError, match="launch needs a function that returns its result"):
            launch(fn)


def test_an_argument_that_cannot_be_sent_is_named():
    lock = threading.Lock()

    def f(x, lock=None):
        return x

    def reader():
        return lock

    why = "cannot be sent to the ranks: TypeError: cannot pickle '_thread.lock' object"
    for call, culprit in [
        (lambda: launch(f, 1, lock), "argument 'lock'"),
        (lambda: launch(f, lock=lock, x=1), "argument 'lock'"),
        (lambda: launch(f, [lock]), "argument 'x'"),
        (lambda: launch(reader), "variable 'lock', which reader uses,"),
    ]:
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == f"{culprit} {why}"


def test_a_deadline_that_no_float_can_hold_is_one():
    assert launch(len, "ab", world_size=1, timeout=10**400) == [2]
