"""Where torchrun has started the ranks, `launch` uses them."""

import re
import subprocess
import sys
from textwrap import dedent

import pytest

from allranks import launch

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
BEGIN = """
    import torch, torch.distributed as dist
    from allranks import launch

    def average(x):
        t = torch.full((3,), dist.get_rank() + x)
        dist.all_reduce(t, op=dist.ReduceOp.AVG)
        return t, dist.get_rank()
"""


def under_torchrun(tmp_path, script):
    """Run a script on two ranks that torchrun starts; return its status and all that it printed."""
    path = tmp_path / "script.py"
    path.write_text(dedent(BEGIN) + dedent(script))
    done = subprocess.run([*TORCHRUN, path], capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stdout + done.stderr


def test_every_rank_gets_the_results_of_all_and_calls_can_be_repeated(tmp_path):
    status, said = under_torchrun(
        tmp_path,
        """
        for x in (1.0, 2.0):
            results = launch(average, x, world_size=2)
            assert [rank for _, rank in results] == [0, 1]
            assert all(torch.equal(t, torch.full((3,), x + 0.5)) for t, _ in results)
        assert len(launch(average, 1.0)) == 2
        print(f"<rank {dist.get_rank()} is content>")
        """,
    )
    assert status == 0, said
    assert sorted(re.findall("<.*?>", said)) == ["<rank 0 is content>", "<rank 1 is content>"]


def test_the_contract_is_that_of_ranks_that_launch_starts(tmp_path):
    """Arguments and what a function reads are copies, seeds are set anew, each call has its deadline."""
    _, said = under_torchrun(
        tmp_path,
        """
        import os, random, time, numpy as np

        class Point: shared = 0

        seen, given, point, over = [], {"a": 1}, Point(), __file__ + ".over"

        def mutate(given, point):
            seen.append(1)
            given["a"] = 2
            Point.shared = 1
            return len(seen), type(point) is Point

        def draw():
            return torch.rand(1).item(), np.random.rand(), random.random()

        def wait():
            if dist.get_rank() == 0:
                try:
                    dist.all_reduce(torch.ones(1))
                except RuntimeError as error:
                    print("<", str(error)[-60:], ">", flush=True)
                open(over, "w").close()
            while not os.path.exists(over):
                time.sleep(0.01)

        if __name__ == "__main__":
            assert launch(mutate, given, point) == launch(mutate, given, point) == [(1, True)] * 2
            assert (seen, given, Point.shared) == ([], {"a": 1}, 1)  # a class is the same class
            first, second = launch(draw), launch(draw)
            assert first == second and len({x for rank in first for x in rank}) == 6, (first, second)
            print(f"<rank {dist.get_rank()} is content>", flush=True)
            launch(wait, timeout=0.5)
        """,
    )
    assert {"<rank 0 is content>", "<rank 1 is content>"} < set(re.findall("<.*?>", said)), said
    assert re.search("<.*Timed out waiting 500ms", said), "the deadline of a later call"


def test_an_exception_is_the_functions_own_and_torchrun_names_it_as_the_root_cause(tmp_path):
    status, said = under_torchrun(
        tmp_path,
        """
        import atexit, time

        def fail():
            if dist.get_rank() == 1:
                atexit.register(time.sleep, 3)  # it ends after those whom it has left
                raise ValueError("no data on this rank")
            dist.barrier()

        launch(fail)
        """,
    )
    assert status != 0
    assert "ValueError: no data on this rank\n" in said
    assert "on rank 1 of 2, which launch did not start" in said
    root_cause = said.partition("Root Cause")[2]
    assert re.search(r"rank +: 1 ", root_cause), said
    assert "no data on this rank" in root_cause


RANK_1 = {"RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


def test_rules_are_refused_where_others_have_started_the_ranks(monkeypatch):
    sentence = r"rules='nccl' is for ranks that launch starts itself.* torchrun -m allranks\.nccl"
    with pytest.raises(ValueError, match=sentence):
        launch(print, rules="nccl", cluster="ray")
    for name, value in RANK_1.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=sentence):
        launch(print, rules="nccl")


def test_a_world_of_another_size_is_refused(monkeypatch):
    for name, value in RANK_1.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"world_size=4 was requested, but this process is rank 1 of 8:"):
        launch(print, world_size=4)
