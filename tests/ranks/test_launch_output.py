"""What ranks print: whole lines, marked, in order, and never too many."""

import math
import os
import pickle
import subprocess
import sys
import threading

import pytest
import torch
import torch.distributed as dist

from allranks import launch, progress
from allranks.launch import bars, output

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")


def test_lines_are_marked_and_come_in_the_order_of_the_ranks(capsys):
    def f():
        for rank in reversed(range(4)):
            if rank == dist.get_rank():
                print(f"one\ntwo of {rank}")
            dist.barrier()

    launch(f)
    lines = [f"[rank {rank}] {line}" for rank in range(4) for line in ("one", f"two of {rank}")]
    assert capsys.readouterr().out == "\n".join(lines) + "\n"


def test_what_c_code_and_subprocesses_print_is_marked_too(capsys):
    def f():
        import ctypes

        libc = ctypes.CDLL(None)
        libc.printf(b"from C")
        libc.fflush(None)
        os.write(2, b", from the descriptor\n")
        subprocess.run(["echo", "from a subprocess"], check=True)
        libc.printf(b"left in a buffer")

    launch(f, world_size=1)
    assert capsys.readouterr().out == (
        "[rank 0] from C, from the descriptor\n[rank 0] from a subprocess\n[rank 0] left in a buffer\n"
    )


def test_carriage_returns_garbage_and_a_missing_newline_are_shown_sensibly(capsys):
    launch(lambda: os.write(1, b"10 %\r20 %\r\nbytes \xff\xfe\nno newline"), world_size=1)
    assert capsys.readouterr().out == "[rank 0] 20 %\n[rank 0] bytes \ufffd\ufffd\n[rank 0] no newline\n"


def test_10_mb_of_output_are_cut_and_kept_whole_in_a_file(capsys):
    def f():
        print(("x" * 99 + "\n") * 100_000, end="")

    launch(f, world_size=1)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == output.SHOWN // 100 + 1
    told, _, path = shown[-1].rpartition(" in ")
    assert told == "[rank 0] … and 9,800,000 bytes more; all of it is"
    assert os.path.getsize(path) == 10_000_000
    os.remove(path)
    os.rmdir(os.path.dirname(path))


def test_a_line_too_long_to_be_shown_is_cut(capsys, monkeypatch):
    monkeypatch.setattr(output, "SHOWN", 10)
    launch(lambda: print("x" * 30), world_size=1)
    shown, cut = capsys.readouterr().out.splitlines()
    assert shown == "[rank 0] xxxxxxxxxx"
    path = cut.removeprefix("[rank 0] … and 21 bytes more; all of it is in ")
    os.remove(path)
    os.rmdir(os.path.dirname(path))


def test_a_rank_may_close_its_output(capsys):
    def f():
        print("last words")
        os.close(1)
        sys.stdout.close()
        return 1

    assert launch(f, world_size=1) == [1]
    assert capsys.readouterr().out == "[rank 0] last words\n"


def test_progress_shows_nothing_where_output_is_compared(capsys):
    def f():
        return sum(progress(range(100), desc="steps"))

    assert launch(f, world_size=2) == [4950, 4950]
    assert list(progress(range(3))) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("total", [torch.tensor(3), math.nan, math.inf, -1, 2.5, None])
@pytest.mark.parametrize("desc", [threading.Lock(), 7])
def test_a_bar_takes_any_number_and_any_description(monkeypatch, total, desc):
    """Both go to the notebook through a pipe."""
    sent = []
    monkeypatch.setattr(bars, "_launched", True)
    monkeypatch.setattr(bars, "_send", sent.append)
    assert list(progress(iter([5, 6]), desc, total)) == [5, 6]
    (_, (_, _, number, text, _)) = pickle.loads(pickle.dumps(sent[-1]))
    assert (number is None or type(number) is int) and text == str(desc)


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(4))


def test_progress_takes_a_loader_that_only_seems_to_have_a_length():
    assert len(list(progress(torch.utils.data.DataLoader(Endless())))) == 4
