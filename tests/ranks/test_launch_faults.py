"""Every fault ends in one exception that names the culprit, and leaves nothing behind."""

import ctypes
import os
import signal
import sys
import threading
import time
from traceback import walk_stack

import pytest
import torch
import torch.distributed as dist

from allranks import launch
from allranks.launch import RankFailed, RanksTimedOut, output

HERE = os.path.relpath(__file__)


@pytest.fixture(autouse=True, scope="module")
def the_fork_server_runs():
    launch(dist.get_rank, world_size=2)


@pytest.fixture(autouse=True)
def the_next_launch_works(nothing_is_left_behind):
    yield
    assert launch(dist.get_rank, world_size=2) == [0, 1]


def failure(fn, *args, kind=RankFailed, **options):
    """Return the exception that launching `fn` ends in; it must not come from a deadline of 1,000 s."""
    start = time.monotonic()
    with pytest.raises(kind) as caught:
        launch(fn, *args, **{"timeout": 1_000, **options})
    assert time.monotonic() - start < 500  # 0.7 s on a quiet machine; benchmarks/ measures it
    return caught.value


def line(text):
    """Return the number of the line of this file that ends with `# text`."""
    with open(__file__) as file:
        (number,) = (n for n, one in enumerate(file, 1) if one.rstrip().endswith(f"# {text}"))
    return number


def test_an_exception_on_one_rank_is_reported_while_the_others_wait():
    def step():
        if dist.get_rank() == 1:
            raise ValueError("shape mismatch")  # raises here
        dist.barrier()  # waits here

    error = failure(step)
    assert str(error) == "rank 1 raised ValueError: shape mismatch"
    assert error.ranks == [1]
    assert error.__notes__ == [
        f"ranks 0, 2, 3: {HERE}, line {line('waits here')}, in step, waiting in barrier\n"
        "rank 1 raised\n"
        f"  {HERE}, line {line('raises here')}, in step\n"
        '    raise ValueError("shape mismatch")  # raises here\n'
        "  ValueError: shape mismatch"
    ]


def test_ranks_that_fail_at_the_same_time_are_named_together():
    def step():
        raise KeyError(f"weight {dist.get_rank() % 2}")

    error = failure(step)
    assert str(error) == ("ranks 0, 2 raised KeyError: 'weight 0' · ranks 1, 3 raised KeyError: 'weight 1'")
    assert error.ranks == [0, 1, 2, 3]


class Unusual(Exception):
    def __reduce__(self):
        raise RuntimeError("not to be pickled")


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def raise_from():
    try:
        raise KeyError("x")
    except KeyError as error:
        raise ValueError("no such weight") from error


def raise_group():
    raise ExceptionGroup("two things", [ValueError("one"), TypeError("two")])


def raise_one(error):
    raise error


def recurse():
    recurse()


@pytest.mark.parametrize(
    "fn, message, more",
    [
        (lambda: raise_one(Unusual("today")), "Unusual: today", ""),
        (lambda: raise_one(Mute()), "Mute: <exception str() failed>", ""),
        (raise_from, "ValueError: no such weight", "  caused by KeyError: 'x'"),
        (
            raise_group,
            "ExceptionGroup: two things (2 sub-exceptions)",
            "  holds ValueError: one\n  holds TypeError: two",
        ),
        (lambda: sys.exit(4), "SystemExit: 4", ""),
        (lambda: exec("a b"), "SyntaxError: invalid syntax (<string>, line 1)", ""),
        (lambda: raise_one(MemoryError()), "MemoryError", ""),
        (lambda: raise_one(KeyboardInterrupt()), "KeyboardInterrupt", ""),
        (recurse, "RecursionError: maximum recursion depth exceeded", ""),
        (lambda: raise_one(ValueError("x" * 1000)), "ValueError: " + "x" * 300, ""),
        (lambda: raise_one(OSError("at 0x7f12ab, 127.0.0.1:4242")), "OSError: at 0x…, 127.0.0.1", ""),
        (lambda: os.close(1) or print("gone"), "OSError: [Errno 9] Bad file descriptor", ""),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_an_exception_of_any_kind_is_named(fn, message, more):
    error = failure(fn, world_size=1)
    assert str(error) == f"rank 0 raised {message}"
    assert error.__notes__[0].startswith("rank 0 raised\n")
    assert error.__notes__[0].endswith(more)
    assert len(error.__notes__[0].splitlines()) < 32


def test_a_rank_that_exits_is_named():
    def step():
        if dist.get_rank() == 2:
            os._exit(3)
        dist.all_reduce(torch.ones(1))  # loses a peer

    error = failure(step)
    assert str(error) == "rank 2 exited with code 3 before the function returned"
    assert error.__notes__ == [
        f"ranks 0, 1, 3: {HERE}, line {line('loses a peer')}, in step, waiting in all_reduce\n"
        "rank 2 reported nothing"
    ]


def test_a_rank_that_dies_of_sigkill_is_named():
    def step():
        if dist.get_rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    error = failure(step)
    assert str(error) == "rank 2 was killed by SIGKILL (by a person, or because memory ran out)"
    assert error.ranks == [2]


def test_a_rank_that_dies_of_a_segmentation_fault_is_named_with_its_line():
    def step():
        if dist.get_rank() == 3:
            ctypes.string_at(0)  # reads nowhere
        dist.barrier()

    error = failure(step)
    assert str(error) == "rank 3 died of SIGSEGV (segmentation fault)"
    assert error.__notes__[0].endswith(f"rank 3: {HERE}, line {line('reads nowhere')}, in step")


def test_a_rank_that_aborts_is_named_with_its_line():
    def step():
        if dist.get_rank() == 0:
            os.abort()  # gives up
        dist.barrier()

    error = failure(step)
    assert str(error) == "rank 0 died of SIGABRT (a C++ library gave up; it may have printed why)"
    assert error.__notes__[0].startswith(f"rank 0: {HERE}, line {line('gives up')}, in step\n")


def test_a_rank_that_returns_early_is_named():
    def step():
        if dist.get_rank() != 0:
            dist.all_reduce(torch.ones(3))

    error = failure(step)
    assert str(error) == "rank 0 returned while ranks 1, 2, 3 were still waiting in all_reduce"
    assert error.ranks == [0]


def test_ranks_that_enter_different_collectives_are_named():
    def step():
        if dist.get_rank() == 1:
            dist.broadcast(torch.ones(4), src=0)
        else:
            dist.all_reduce(torch.ones(4))

    error = failure(step, kind=RanksTimedOut, timeout=1)
    assert str(error) == (
        "ranks 0, 1, 2, 3 were still running after 1 s · ranks 0, 2, 3 entered all_reduce with (4,) Float"
        " · rank 1 entered broadcast with (4,) Float"
    )


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda rank: torch.ones(4 if rank == 1 else 3),
            "ranks 0, 2, 3 entered all_reduce with (3,) Float · rank 1 entered all_reduce with (4,) Float",
        ),
        (
            lambda rank: torch.ones(3, dtype=torch.float64 if rank == 1 else torch.float32),
            "ranks 0, 2, 3 entered all_reduce with (3,) Float · rank 1 entered all_reduce with (3,) Double",
        ),
    ],
    ids=["shape", "dtype"],
)
def test_a_rank_whose_tensor_is_not_like_the_others_is_named(make, message):
    def step():
        dist.barrier()
        dist.all_reduce(make(dist.get_rank()))

    error = failure(step)
    assert str(error) == message
    assert error.ranks == [1]


def test_uneven_collectives_are_no_disagreement():
    def step():
        rank = dist.get_rank()
        parts = [torch.ones(2) for _ in range(2)] if rank == 0 else None
        dist.scatter(torch.empty(2), parts, src=0)
        sizes = [1, 2] if rank == 0 else [3, 4]
        got = torch.empty(4 if rank == 0 else 6)
        dist.all_to_all_single(got, torch.ones(sum(sizes)), [1, 3] if rank == 0 else [2, 4], sizes)
        time.sleep(60)

    error = failure(step, world_size=2, kind=RanksTimedOut, timeout=0.5)
    assert str(error) == "ranks 0, 1 were still running after 0.5 s"


def test_a_deadlock_ends_at_the_deadline_and_says_where_each_rank_stands():
    def exchange():
        if dist.get_rank() in (0, 2):
            dist.recv(torch.empty(1), src=2 - dist.get_rank())  # nobody sends

    error = failure(exchange, kind=RanksTimedOut, timeout=0.5)
    assert str(error) == "ranks 0, 2 were still running after 0.5 s"
    assert error.ranks == [0, 2]
    assert isinstance(error, TimeoutError)
    assert error.__notes__ == [
        f"ranks 0, 2: {HERE}, line {line('nobody sends')}, in exchange, waiting in recv\nranks 1, 3 returned"
    ]


def test_a_rank_stuck_in_c_code_that_holds_the_interpreter_is_found():
    def stuck():
        ctypes.PyDLL(None).sleep(60)  # holds it

    error = failure(stuck, world_size=2, kind=RanksTimedOut, timeout=0.5)
    assert error.__notes__ == [f"ranks 0, 1: {HERE}, line {line('holds it')}, in stuck"]


def test_a_result_that_cannot_be_sent_is_named():
    error = failure(lambda: threading.Lock() if dist.get_rank() else None, world_size=2)
    assert str(error) == (
        "rank 1 raised TypeError: the result, a lock, cannot be sent back: "
        "TypeError: cannot pickle '_thread.lock' object"
    )


def test_a_rank_that_launches_is_told_so():
    error = failure(lambda: launch(dist.get_rank), world_size=2)
    assert str(error) == (
        "ranks 0, 1 raised RuntimeError: launch was called on a rank: a rank is already one process of a "
        "world. Call launch in the notebook; for fewer ranks, use dist.new_group."
    )


@pytest.mark.parametrize(
    "talk",
    [
        lambda: [print("all work and no play") for _ in range(10**9)],
        lambda: os.execvp("yes", ["yes"]),
    ],
    ids=["Python", "a command"],
)
def test_a_rank_that_prints_without_end_is_stopped(monkeypatch, capsys, tmp_path, talk):
    monkeypatch.setattr(output, "ALLOWED", 1_000_000)
    monkeypatch.setattr(output.tempfile, "tempdir", str(tmp_path))
    error = failure(talk, world_size=1)
    assert str(error) == "rank 0 printed more than 1,000,000 bytes and was stopped"
    shown, _, cut = capsys.readouterr().out.removesuffix("\n").rpartition("\n[rank 0] … and ")
    assert len(shown) >= output.SHOWN
    path = cut.rpartition(" bytes more; all of it is in ")[2]
    assert os.path.getsize(path) > output.ALLOWED
    os.remove(path)


@pytest.fixture
def interrupts():
    """Python raises KeyboardInterrupt, also where a shell started it in the background, deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_all_ranks(interrupts, tmp_path):
    def watch(thread):
        while "recv" not in [f.f_code.co_name for f, _ in walk_stack(sys._current_frames()[thread])]:
            time.sleep(0.01)
        (tmp_path / str(dist.get_rank())).touch()

    def exchange():
        threading.Thread(target=watch, args=[threading.get_ident()], daemon=True).start()
        dist.recv(torch.empty(1), src=1 - dist.get_rank())  # interrupted here

    def press():
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    error = failure(exchange, world_size=2, kind=KeyboardInterrupt)
    assert str(error) == "all ranks were ended"
    assert error.__notes__ == [
        f"ranks 0, 1: {HERE}, line {line('interrupted here')}, in exchange, waiting in recv"
    ]


def test_what_a_failed_rank_printed_is_shown(capsys):
    def step():
        print(f"before {dist.get_rank()}")
        os.write(1, b"no newline")
        os._exit(1)

    failure(step, world_size=2)
    assert capsys.readouterr().out.splitlines() == [
        f"[rank {rank}] {text}" for rank in (0, 1) for text in (f"before {rank}", "no newline")
    ]


def test_processes_that_a_failed_rank_started_end_with_it():
    def step():
        if os.fork() == 0:
            time.sleep(60)
        raise ValueError("and leave a child")

    failure(step, world_size=2)
