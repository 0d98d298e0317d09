"""`python -m allranks trace` reads the traces of a torchrun job that never heard of this book."""

import gzip
import json
import shutil
import subprocess
import sys

import pytest

from allranks import launch, profiles
from allranks.__main__ import main

JOB = """
import os, sys, time, torch, torch.distributed as dist
from pathlib import Path
from torch import nn, profiler
dist.init_process_group("gloo")
rank = dist.get_rank()
ddp = nn.parallel.DistributedDataParallel(nn.Linear(300, 300))
sgd = torch.optim.SGD(ddp.parameters(), lr=0.1)
written = profiler.tensorboard_trace_handler(sys.argv[1], f"rank_{rank}", use_gzip=True)
when = profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
with profiler.profile(schedule=when, on_trace_ready=written) as recorder:
    for step in range(4):
        if rank == 1:  # sleep while the others wait: they are there, however late the machine let them come
            while not all(Path(f"{sys.argv[1]}-{step}-{other}").exists() for other in (0, 2)):
                time.sleep(0.01)
            time.sleep(0.5)
        else:
            Path(f"{sys.argv[1]}-{step}-{rank}").touch()
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
    subprocess.run(command, check=True, timeout=600, capture_output=True)
    return folder / "traces"


def test_the_sleeping_rank_of_a_torchrun_job_is_named(job, capsys, tmp_path):
    merged = tmp_path / "merged.json.gz"
    assert main(["trace", str(job), "--out", str(merged)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("3 ranks, 2 collectives, ")
    assert said[-2].startswith("The others wait for rank 1: its call is the shortest in ")
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
    said = capsys.readouterr().err
    assert said.startswith("two files are from rank 0, ") and said.endswith(
        ": give one file a rank, from one run\n"
    )


def test_a_verdict_needs_all_ranks_and_a_collective(job, capsys):
    files = sorted(map(str, job.iterdir()))
    assert main(["trace", files[0], files[2]]) == 0  # without the rank that sleeps
    said = capsys.readouterr().out
    assert said.endswith("None of these ranks stands out. They may all wait for rank 1: find that trace.\n")
    assert main(["trace", files[1]]) == 0
    assert "One trace does not show who waits for whom" in capsys.readouterr().out


def test_a_merged_trace_is_left_out_of_its_folder_and_refused_as_a_file(job, capsys, tmp_path):
    folder = shutil.copytree(job, tmp_path / "traces")
    merged = folder / "merged.json"
    for out in (["--out", str(merged)], ["--out", str(merged)], []):
        assert main(["trace", str(folder), *out]) == 0
    capsys.readouterr()
    assert main(["trace", str(merged)]) == 1
    assert capsys.readouterr().err == "merged.json is a merged trace: give the traces of single ranks\n"
    assert main(["trace", str(folder), "--out", str(folder / "nowhere" / "merged.json")]) == 1
    assert capsys.readouterr().err.endswith("merged.json cannot be written: No such file or directory\n")


def test_plain_or_gzipped_whatever_the_ending_says(job, capsys, tmp_path):
    for number, path in enumerate(sorted(job.iterdir())):
        content = path.read_bytes()
        ending = "json.gz" if number else "json"  # zipped without the ending, and plain with it
        (tmp_path / f"rank_{number}.{ending}").write_bytes(gzip.decompress(content) if number else content)
    assert main(["trace", str(tmp_path)]) == 0
    assert "3 ranks, 2 collectives" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("missing.json", None, "there is no file or folder /"),
        ("empty.json", b"", "empty.json is empty"),
        ("notes.json", b"no json", "notes.json is not a trace: it is not JSON"),
        ("bytes.json", bytes(range(128, 256)), "bytes.json is not a trace: it is not JSON"),
        ("cut.json", b'{"traceEvents": [{"na', "cut.json ends too early"),
        ("cut.json.gz", gzip.compress(bytes(9999), mtime=0)[:-9], "cut.json.gz ends too early"),
        ("list.json", b"[]", "list.json: this is not a trace of torch.profiler"),
        (
            "odd.json",
            b'{"traceEvents": [{"ph": "X"}], "distributedInfo": {"rank": 0}}',
            "odd.json: this is not a",
        ),
        (
            "words.json",
            b'{"traceEvents": ["X"], "distributedInfo": {"rank": 0}}',
            "words.json: this is not a",
        ),
        ("folder", None, "there is no trace in /"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence(tmp_path, capsys, name, content, said):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
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
