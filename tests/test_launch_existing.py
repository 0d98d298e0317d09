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
    done = subprocess.run([*TORCHRUN, path], capture_output=True, text=True, timeout=100, check=False)
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


def test_an_exception_is_the_functions_own_with_a_note_of_the_rank(tmp_path):
    status, said = under_torchrun(
        tmp_path,
        """
        def fail():
            if dist.get_rank() == 1:
                raise ValueError("no data on this rank")
            dist.barrier()

        launch(fail)
        """,
    )
    assert status != 0
    assert "ValueError: no data on this rank\n" in said
    assert "on rank 1 of 2, which launch found started" in said


def test_a_world_of_another_size_is_refused(monkeypatch):
    for name, value in {"RANK": 1, "WORLD_SIZE": 8, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(ValueError, match=r"world_size=4 was asked for, and this process is rank 1 of 8:"):
        launch(print, world_size=4)
