"""`python -m allranks trace` reads the traces of a torchrun job that never heard of this book."""

import gzip
import json
import subprocess
import sys

import pytest

from allranks import launch, profiles
from allranks.__main__ import main

JOB = """
import os, sys, time, torch, torch.distributed as dist
from torch import nn, profiler
dist.init_process_group("gloo")
rank = dist.get_rank()
ddp = nn.parallel.DistributedDataParallel(nn.Linear(300, 300))
sgd = torch.optim.SGD(ddp.parameters(), lr=0.1)
written = profiler.tensorboard_trace_handler(sys.argv[1], f"rank_{rank}", use_gzip=True)
when = profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
with profiler.profile(schedule=when, on_trace_ready=written) as recorder:
    for _ in range(4):
        time.sleep(0.5 * (rank == 1))
        ddp(torch.ones(8, 300)).sum().backward()
        sgd.step()
        recorder.step()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The folder of the traces of a job of three ranks, of which rank 1 sleeps."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(JOB)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=3"]
    command += [str(folder / "train.py"), str(folder / "traces")]
    subprocess.run(command, check=True, timeout=100, capture_output=True)
    return folder / "traces"


def test_the_sleeping_rank_of_a_torchrun_job_is_named(job, capsys, tmp_path):
    merged = tmp_path / "merged.json.gz"
    assert main(["trace", str(job), "--out", str(merged)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("3 ranks, 2 collectives, ")
    assert said[-2].startswith("The others wait for rank 1: its collectives are the shortest, ")
    with gzip.open(merged, "rt") as file:
        events = json.load(file)["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert all(any(name.startswith(f"rank {rank} · ") for name in names) for rank in range(3))
    assert {event["pid"] // 1000 for event in events if event["name"] == "gloo:all_reduce"} == {0, 1, 2}


def test_a_missing_rank_is_said_and_a_file_given_twice_is_refused(job, capsys):
    files = sorted(map(str, job.iterdir()))
    assert main(["trace", *files[:2]]) == 0
    assert "no trace of rank 2" in capsys.readouterr().out
    assert main(["trace", files[0], files[0]]) == 1
    assert capsys.readouterr().err == "two files are of rank 0: give one a rank, of one run\n"


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("missing.json", None, "missing.json: No such file or directory"),
        ("notes.json", "no json", "notes.json: Expecting value"),
        ("list.json", "[]", "list.json: this is no trace of torch.profiler"),
        ("folder", None, "there is no trace in that folder"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence(tmp_path, capsys, name, content, said):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    elif "." not in name:
        path.mkdir()
    assert main(["trace", str(path)]) == 1
    assert capsys.readouterr().err.startswith(said)


def test_a_rank_that_profiles_prints_nothing_of_its_own(capfd):
    def profiled():
        from torch.profiler import profile

        with profile():
            pass

    launch(profiled, world_size=1)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("name", profiles.EXAMPLES)
def test_what_recorded_a_stored_trace_is_said(name):
    assert (
        "gloo ranks" in profiles.ABOUT
        and "torch" in profiles.ABOUT
        and "benchmarks/traces.py" in profiles.ABOUT
    )
    assert len(profiles.example(name)) == 4
