"""Dumps of a job that has never heard of this book name its culprit; torch's own reader takes them too."""

import gzip
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch.distributed.flight_recorder import fr_trace

from allranks import hang, launch
from allranks.__main__ import main
from allranks.hang import Dump
from allranks.launch.recorder import Call, History
from allranks.launch.stacks import Frame

PROGRAM = """
import os, signal, torch, torch.distributed as dist

def step(value):
    if value < 0:
        raise ValueError("a negative value")
    dist.all_reduce(torch.tensor([value]))

dist.init_process_group("gloo")
rank = dist.get_rank()
step(1.0)
for how in os.environ["HOW"].split():
    if how == "ask":
        os.kill(os.getpid(), signal.SIGUSR1)
    if how == "raise":
        step(1.0 - 2 * rank)
    if how == "hang":
        if rank:
            dist.barrier()
        step(2.0)
    if how == "abort":
        os.abort()
dist.destroy_process_group()
"""


@pytest.fixture
def port():
    """A port that is held, and yet free for rank 0."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def start(folder, port, how, world_size=2):
    """Start ranks with the words and the environment that torchrun gives them; return the processes."""
    (folder / "train.py").write_text(PROGRAM)
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world_size), "HOW": how}
    command = [sys.executable, "-m", "allranks.hang", "train.py"]
    return [
        subprocess.Popen(
            command, cwd=folder, env=os.environ | world | {"RANK": str(rank)}, stderr=subprocess.DEVNULL
        )
        for rank in range(world_size)
    ]


def entered(folder):
    """How many collectives each rank has entered, by its dump."""
    return [len(dump.history.calls) for dump in hang.read([folder / "hang"]).values()]


def test_a_rank_that_hangs_says_where_when_it_is_told_to_stop(tmp_path, port, capsys):
    ranks = start(tmp_path, port, "ask hang")
    try:
        until = time.monotonic() + 300
        while len(list(tmp_path.glob("hang/rank_?"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)  # SIGUSR1 makes a rank write, and it goes on
        assert entered(tmp_path) in ([1, 1], [1, 2], [2, 1], [2, 2])
        while entered(tmp_path) != [2, 2] and time.monotonic() < until:
            for process in ranks:
                process.send_signal(signal.SIGUSR1)
            time.sleep(0.05)
        for process in ranks:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(300) for process in ranks]
        assert -signal.SIGTERM in codes  # the other may hear of that by its connection first
        assert set(codes) <= {-signal.SIGTERM, 1, -signal.SIGABRT}
    finally:
        for process in ranks:
            process.kill()
    assert main(["hang", str(tmp_path / "hang")]) == 1
    said = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"collective 2 of all ranks differs: rank 0 entered all_reduce with \(1,\) Float at train\.py, "
        r"line 7, in step · rank 1 entered barrier at train\.py, line 19",
        said[0],
    )
    assert "rank 0: train.py, line 7, in step, waiting in all_reduce" in said
    assert "rank 1: train.py, line 19, waiting in barrier" in said
    fr_trace.main([str(tmp_path / "hang"), "--prefix", hang.dumps.PREFIX])


def test_an_exception_is_named_before_what_it_did_to_others(tmp_path, port):
    for process in start(tmp_path, port, "raise"):
        assert process.wait(300) in (1, -signal.SIGABRT)  # gloo's threads may outlive the interpreter
    found = hang.findings(hang.read([tmp_path / "hang"]))
    assert found[0] == "rank 1 raised ValueError: a negative value at train.py, line 6, in step"
    assert found[1].startswith("rank 1 did not enter collective 2 of all ranks: rank 0 entered all_reduce")
    assert len(found) == 2  # the other rank's "connection closed" is an echo


def test_a_rank_that_aborts_writes_first(tmp_path, port):
    (process,) = start(tmp_path, port, "abort", world_size=1)
    assert process.wait(300) == -signal.SIGABRT
    dumps = hang.read([tmp_path / "hang"])
    assert [len(dump.history.calls) for dump in dumps.values()] == [1]
    assert hang.findings(dumps) == []
    assert hang.standing(dumps) == ["rank 0: train.py, line 22"]


# ---- on ranks of `launch` ----


def groups_of_a_mesh(folder):
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    for name in ("data", "tensor"):
        dist.all_reduce(torch.ones(2), group=mesh.get_group(name))
    pair, _ = dist.new_subgroups(2)
    dist.all_reduce(torch.ones(2), group=pair)
    mine = [0, 1] if dist.get_rank() < 2 else [2, 3]
    dist.all_reduce(torch.ones(2), group=dist.new_group(mine, use_local_synchronization=True))
    hang.write(folder)


def test_a_job_with_many_groups_has_nothing_to_find(tmp_path):
    launch(groups_of_a_mesh, tmp_path, world_size=4)
    dumps = hang.read([tmp_path])
    assert hang.findings(dumps) == []
    assert len(hang.table(dumps)) == 16 and len(hang.table(dumps, last=1)) == 4


def test_hosts_in_front_of_the_number_do_not_matter_and_a_missing_rank_is_named(tmp_path, capsys):
    launch(groups_of_a_mesh, tmp_path, world_size=4)
    for rank in (0, 1, 3):
        (tmp_path / f"rank_{rank}").rename(tmp_path / f"nccl_trace_rank_node-{rank}_{rank}")
    (tmp_path / "rank_2").unlink()
    dumps = hang.read(tmp_path.iterdir())
    assert list(dumps) == [0, 1, 3]
    assert hang.findings(dumps)[0] == "rank 2 left no dump"


def test_what_is_no_dump_is_refused_and_not_run(tmp_path, capsys):
    marker = tmp_path / "was run"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    (tmp_path / "rank_0").write_bytes(pickle.dumps({"entries": [Evil()]}))
    assert main(["hang", str(tmp_path)]) == 2
    assert "it asks for posix.mkdir" in capsys.readouterr().err and not marker.exists()
    for name, content, said in (
        ("rank_1", b"", "rank_1 is empty"),
        ("rank_1", pickle.dumps({"entries": ["one"]})[:-5], "rank_1 ends too early"),
        ("rank_1", b'{"entries": []}', "it is not pickled"),
        ("rank_1", b"garbage\n", "it is not pickled"),
        ("rank_1", pickle.dumps([]), "it holds something else"),
        ("rank_1", pickle.dumps({"entries": []}), "it lacks 'pg_config'"),
        ("notes.txt", b"", "must end in the number of its rank"),
        ("rank_9", None, "there is no "),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(hang.NoDump, match=said):
            hang.read([tmp_path / name])
    with pytest.raises(hang.NoDump, match="no dumps in"):
        hang.read([])


def test_a_damaged_dump_is_refused_whatever_the_damage(tmp_path, capsys):
    launch(groups_of_a_mesh, tmp_path, world_size=4)
    path = tmp_path / "rank_1"
    whole = path.read_bytes()
    dump = pickle.loads(whole)
    first = dump["entries"][0]
    huge = b"\x80\x04\x95" + b"\xff" * 8 + whole[11:]  # a frame of 2**64 bytes
    damaged = [huge, whole[: len(whole) // 2]]
    for change in (
        {"entries": [first | {"input_sizes": 1}]},
        {"entries": [first | {"input_sizes": [[None]]}]},
        {"entries": [first | {"input_dtypes": None}]},
        {"entries": [first | {"collective_seq_id": "x"}]},
        {"stands": [[1, 2, 3]]},
        {"groups_made": [None]},
        {"raised": 7},
        {"pg_config": [1]},
    ):
        damaged.append(pickle.dumps(dump | change))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(hang.NoDump, match=r"rank_1 (is not a dump|ends too early)"):
            hang.read([path])
    assert main(["hang", str(path)]) == 2 and "Traceback" not in capsys.readouterr().err


def test_a_file_where_dumps_should_go_is_said_at_once(tmp_path):
    (tmp_path / "hang").touch()
    (tmp_path / "program.py").touch()
    command = [sys.executable, "-m", "allranks.hang", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1 and "hang is a file, but dumps need a folder" in done.stderr


def test_one_file_that_cannot_be_read_is_said_and_the_others_are_read(tmp_path, capsys):
    launch(groups_of_a_mesh, tmp_path, world_size=4)
    (tmp_path / "rank_1").write_bytes(b"")
    zipped = gzip.compress((tmp_path / "rank_2").read_bytes())
    (tmp_path / "rank_2").unlink()
    (tmp_path / "rank_2.gz").write_bytes(zipped)
    assert main(["hang", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "rank_1 is empty" in said.err and said.out.startswith("rank 1 left no dump\n")


def test_dumps_of_two_runs_are_not_compared(tmp_path):
    for world_size in (4, 2):  # ranks 2 and 3 keep the dumps of the first
        launch(groups_of_a_mesh if world_size == 4 else entered_once, tmp_path, world_size=world_size)
    said = "the dumps are not from one run: ranks 0, 1 of a run of 2 · ranks 2, 3 of a run of 4"
    assert hang.findings(hang.read([tmp_path]))[0] == said
    (tmp_path / "host_b_rank_0").write_bytes((tmp_path / "rank_0").read_bytes())
    with pytest.raises(hang.NoDump, match="are both from rank 0: give the dumps of one run"):
        hang.read([tmp_path])


def entered_once(folder):
    dist.barrier()
    hang.write(folder)


def test_without_a_finding_it_is_said_what_is_missing():
    assert (
        hang.nothing_found(dumps([], [])) == "No rank has entered a collective, as far as the recorder knows."
    )
    assert hang.nothing_found(dumps([SUM])).startswith("One dump cannot be compared")
    assert hang.nothing_found(dumps([SUM], [SUM])).startswith("2 dumps agree")


def test_a_module_is_started_as_torchrun_starts_it_and_a_missing_program_is_said(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "train.py").write_text(
        "import sys; from . import __name__; print(__name__, sys.argv[1:])"
    )
    command = [sys.executable, "-m", "allranks.hang"]
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert run([*command, "-m", "package.train", "--lr", "1"]).stdout == "package ['--lr', '1']\n"
    for arguments, said in (
        ([], "usage: torchrun"),
        (["-m"], "usage: torchrun"),
        (["no.py"], "there is no no.py;"),
    ):
        done = run([*command, *arguments])
        assert done.returncode and done.stderr.startswith(said), done.stderr


# ---- what is said, without ranks ----


def dumps(*ranks, made=None):
    """Dumps of ranks that have entered (name, elements, line) in the group of all."""
    found = {}
    for rank, entered in enumerate(ranks):
        calls = [
            Call("0", "all", 0, number, name, [[n]], ["Float"], False, Frame("train.py", line, "step"))
            for number, (name, n, line) in enumerate(entered, 1)
        ]
        found[rank] = Dump(History(calls, {"0": [*range(len(ranks))]}, made and made[rank]))
    return found


SUM, OTHER, LATER = ("all_reduce", 4, 7), ("all_reduce", 4, 9), ("broadcast", 4, 9)


@pytest.mark.parametrize(
    "given, said",
    [
        (dumps([SUM], [SUM]), []),
        (
            dumps([SUM], [SUM], made=(1, 2)),
            ["rank 0 called new_group 0 times · rank 1 called new_group once"],
        ),
        (dumps([SUM, SUM], [SUM, LATER]), ["collective 2 of all ranks differs: rank 0 entered all_reduce"]),
        (dumps([SUM, SUM], [SUM]), ["rank 1 did not enter collective 2 of all ranks: rank 0 entered"]),
        (dumps([SUM], [OTHER]), ["collective 1 of all ranks looks the same on all ranks, but comes from"]),
        (dumps([SUM, SUM], [OTHER]), ["rank 1 did not enter"]),  # lines only where there is nothing stronger
        (dumps([], []), []),
    ],
)
def test_findings(given, said):
    found = hang.findings(given)
    assert len(found) == len(said)
    assert all(sentence.startswith(start) for sentence, start in zip(found, said, strict=True))
