"""Nobody is blamed who only suffered, no message is hidden, and no mismatch is silent."""

import copy
import os
import pickle
import re
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from allranks import launch
from allranks.launch import LaunchError, RankFailed, RanksTimedOut, recorder
from allranks.trace import trace

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")


def failure(fn, *args, kind=RankFailed, **options):
    with pytest.raises(kind) as caught:
        launch(fn, *args, **options)
    return caught.value


# ---- messages ----


@pytest.mark.parametrize(
    "message",
    [
        "read error in part-1.pt",
        "connection refused by the licence server",
        "broken pipe in the data loader",
        "socket timeout while downloading",
    ],
)
def test_an_exception_of_the_readers_own_is_no_echo_whatever_it_says(message):
    def step():
        if dist.get_rank() == 1:
            raise RuntimeError(message)
        dist.all_reduce(torch.ones(1))

    error = failure(step)
    assert str(error) == f"rank 1 raised RuntimeError: {message}"
    assert error.ranks == [1]


@pytest.mark.parametrize("how", ["from", "while"])
def test_an_exception_raised_from_an_echo_is_an_echo_and_is_shown(how):
    class TrainingFailed(Exception):
        pass

    def step():
        if dist.get_rank() == 1:
            os._exit(3)
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            if how == "from":
                raise TrainingFailed("step 7 is lost") from error
            raise TrainingFailed("step 7 is lost")  # noqa: B904

    error = failure(step)
    assert str(error) == "rank 1 exited with code 3 before the function returned"
    assert "TrainingFailed: step 7 is lost" in error.__notes__[0]


def test_what_is_added_to_an_exception_is_shown():
    def step():
        error = ValueError("no such file")
        error.add_note("looked in /data")
        raise error

    assert failure(step, world_size=1).__notes__[0].endswith("  ValueError: no such file\n  looked in /data")


def test_an_echo_that_only_echoes_is_shown_if_nobody_else_can_be_blamed():
    def step():
        if dist.get_rank() == 0:
            dist.irecv(torch.ones(1), src=1).wait(timedelta(milliseconds=300))
        time.sleep(60)

    error = failure(step, world_size=2)
    assert str(error) == "rank 0 raised RuntimeError: Timed out waiting 300ms for recv operation to complete"


# ---- groups ----


def test_a_group_made_again_is_another_group():
    def step():
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1), group=dist.new_group([0]))
        else:
            dist.new_group([0])
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group("gloo")
        dist.broadcast(torch.ones(2), src=0)
        dist.all_reduce(torch.ones(2))
        if dist.get_rank() == 2:
            os.kill(os.getpid(), signal.SIGABRT)
        dist.barrier()

    assert str(failure(step)).startswith("rank 2 died of SIGABRT")


def test_a_rank_in_its_second_group_is_not_compared_with_the_first_of_others():
    def step():
        dist.all_reduce(torch.ones(3))
        if dist.get_rank() == 1:
            dist.destroy_process_group()
            store = dist.HashStore()
            dist.init_process_group("gloo", store=store, rank=0, world_size=1)
            dist.broadcast(torch.ones(5), src=0)
        time.sleep(60)

    error = failure(step, kind=RanksTimedOut, world_size=2, timeout=0.5)
    assert str(error) == "ranks 0, 1 were still running after 0.5 s"


def test_groups_of_which_others_know_nothing_are_not_compared():
    def step():
        rank = dist.get_rank()
        group = dist.new_group([0, 1] if rank < 2 else [2, 3], use_local_synchronization=True)
        dist.all_reduce(torch.ones(2 if rank < 2 else 3), group=group)

    launch(step)


def test_a_rank_that_left_its_group_is_to_blame():
    def step():
        if dist.get_rank() == 1:
            dist.destroy_process_group()
            time.sleep(60)
        dist.all_reduce(torch.ones(1))

    error = failure(step)
    assert str(error) == "rank 1 had left the group while ranks 0, 2, 3 were still waiting in all_reduce"
    assert error.ranks == [1]


@pytest.mark.parametrize("members", [[0, 1, 2, 3], [0, 1]])
def test_a_rank_that_comes_too_late_is_to_blame_and_not_those_who_gave_up(members):
    def step():
        group = dist.new_group(members)
        if dist.get_rank() in members:
            dist.all_reduce(torch.ones(1), group=group)
            if dist.get_rank() == 1:
                time.sleep(60)
            dist.distributed_c10d._set_pg_timeout(timedelta(milliseconds=300), group)
            dist.all_reduce(torch.ones(1), group=group)
        time.sleep(60)

    error = failure(step)
    who, sentence = str(error).split(" gave up ")  # on a busy machine not all of them have by then
    assert set(map(int, re.findall(r"\d", who))) <= set(members) - {1} and who.startswith("rank")
    assert sentence == "waiting for rank 1 in all_reduce"
    assert error.ranks == [1]


# ---- mismatches that gloo does not notice ----


def broadcast_into(dtype):
    t = torch.ones(3, dtype=dtype if dist.get_rank() == 1 else torch.float32)
    dist.broadcast(t, src=0)


def reduce_other_sizes():
    if dist.get_rank() == 1:
        dist.all_reduce(torch.ones(4, dtype=torch.int16))
    else:
        dist.all_reduce(torch.ones(2, dtype=torch.float32))


def test_a_wrong_result_that_gloo_returns_is_an_error():
    error = failure(broadcast_into, torch.int32)
    assert str(error) == (
        "ranks 0, 2, 3 entered broadcast with (3,) Float · rank 1 entered broadcast with (3,) Int: "
        "gloo reported no error, but the results are wrong"
    )
    assert error.ranks == [1]
    assert failure(reduce_other_sizes).ranks == [1]


def test_other_shapes_of_as_many_elements_are_a_warning():
    def step():
        t = torch.arange(6.0).reshape((2, 3) if dist.get_rank() else (3, 2))
        dist.all_reduce(t)
        return t.sum().item()

    with pytest.warns(
        UserWarning, match=r"^rank 0 entered all_reduce with \(3, 2\) Float · rank 1 entered"
    ) as seen:
        assert launch(step, world_size=2) == [30.0, 30.0]
    assert seen[0].filename == __file__


def test_a_legal_difference_in_shape_is_not_accused_of_what_comes_later():
    def step():
        dist.all_reduce(torch.ones((4,) if dist.get_rank() else (2, 2)))
        if dist.get_rank() == 1:
            os.abort()
        dist.barrier()

    assert str(failure(step, world_size=2)).startswith("rank 1 died of SIGABRT")


def test_what_may_differ_is_no_mismatch():
    def step():
        rank, world_size = dist.get_rank(), dist.get_world_size()
        dist.gather(torch.ones(2), [torch.empty(2) for _ in range(world_size)] if rank == 1 else None, dst=1)
        dist.scatter(torch.empty(2), [torch.ones(2) for _ in range(world_size)] if rank == 1 else None, src=1)
        dist.all_gather_object([None] * world_size, "x" * 10**rank)
        dist.gather_object(rank, [None] * world_size if rank == 0 else None)
        sizes = [1, 2] if rank == 0 else [3, 4]
        got = torch.empty(4 if rank == 0 else 6)
        dist.all_to_all_single(got, torch.ones(sum(sizes)), [1, 3] if rank == 0 else [2, 4], sizes)
        dist.all_reduce(torch.ones(3), group=dist.new_group([rank], use_local_synchronization=True))
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
        model(torch.ones(1, 3)).sum().backward()

    launch(step, world_size=2)


def test_thousands_of_collectives_are_compared_as_far_as_they_are_kept():
    def step():
        t = torch.ones(1)
        for _ in range(3000):
            dist.all_reduce(t)
        dist.broadcast(torch.ones(1, dtype=torch.int32 if dist.get_rank() else torch.float32), src=0)

    assert failure(step, world_size=2).ranks == [0, 1]


# ---- names ----


def test_under_a_trace_a_rank_waits_in_the_readers_line_and_not_in_the_package():
    def meet(rank):
        with trace():
            dist.recv(torch.zeros(1), 1 - rank)

    def both():
        meet(dist.get_rank())

    late = failure(both, kind=RanksTimedOut, world_size=2, timeout=2)
    line = meet.__code__.co_firstlineno + 2
    assert late.places == [
        f"ranks 0, 1: tests/ranks/test_launch_blame.py, line {line}, in meet, waiting in recv"
    ]
    assert late.__notes__ == late.places


def test_the_exceptions_are_found_at_launch_and_survive_a_pickle_and_a_copy():
    assert launch.RankFailed is RankFailed
    assert launch.RanksTimedOut is RanksTimedOut

    def step():
        raise ValueError("no")

    error = failure(step, world_size=1)
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (str(same), same.ranks, same.__notes__) == (str(error), error.ranks, error.__notes__)
        assert isinstance(same, LaunchError)


def test_many_ranks_are_counted_and_not_listed():
    def step():
        raise ValueError("no")

    assert str(failure(step, world_size=9)) == "all 9 ranks raised ValueError: no"


@pytest.mark.parametrize("number, name", [(signal.SIGRTMIN + 6, "SIGRTMIN+6"), (signal.SIGTERM, "SIGTERM")])
def test_a_rank_that_a_signal_ends_is_named_with_it(number, name):
    error = failure(lambda: os.kill(os.getpid(), number), world_size=1)
    assert str(error) == f"rank 0 was killed by {name}"


def test_several_ranks_that_a_signal_ends_were_killed():
    error = failure(lambda: os.kill(os.getpid(), signal.SIGTERM), world_size=2)
    assert str(error) == "ranks 0, 1 were killed by SIGTERM"


def test_process_ids_do_not_tell_ranks_apart():
    def step():
        raise RuntimeError(f"DataLoader worker (pid(s) {os.getpid()}, 12) exited unexpectedly")

    assert str(failure(step, world_size=2)).endswith(
        "ranks 0, 1 raised RuntimeError: DataLoader worker exited unexpectedly"
    )


def test_what_is_no_character_is_shown_escaped():
    """A Jupyter kernel cannot send half of a pair, and would show no error at all."""

    def step():
        error = FileNotFoundError(os.fsdecode(b"caf\xe9.txt"))
        error.add_note("\ud800")
        raise error from ValueError("\udfff")

    error = failure(step, world_size=1)
    assert str(error) == r"rank 0 raised FileNotFoundError: caf\udce9.txt"
    assert error.__notes__[0].endswith("\n  caused by ValueError: \\udfff\n  \\ud800")


def test_an_exception_that_is_its_own_cause_or_has_odd_notes_is_named():
    def step():
        try:
            raise ValueError("again")
        except ValueError as error:
            error.__notes__ = 5
            raise error from error

    assert str(failure(step, world_size=1, timeout=5)) == "rank 0 raised ValueError: again"


def test_a_record_that_is_written_again_is_there_all_the_time(tmp_path, monkeypatch):
    path = str(tmp_path / "collectives-0")
    monkeypatch.setattr(recorder, "load", lambda pickled: {})
    monkeypatch.setattr(recorder.private, "flight_recorder", lambda: b"")
    monkeypatch.setattr(recorder.private, "groups", lambda: {"own": [0, 1]})
    monkeypatch.setattr(recorder.private, "groups_made", lambda: 1)
    recorder.write(path)
    before = recorder.read(path)
    assert before.groups == {"own": [0, 1]}

    def end_in_the_middle(history, file):
        file.write("[")
        file.flush()
        assert recorder.read(path) == before
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder.json, "dump", end_in_the_middle)
    with pytest.raises(KeyboardInterrupt):
        recorder.write(path)
    assert recorder.read(path) == before
