"""The ranks of the next launch may have been started ahead; nobody can tell, except by the clock."""

import ast
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch.distributed as dist
from kernel import leftovers

from allranks import launch
from allranks.launch import keeper, standby


@pytest.fixture(autouse=True)
def one_stands_by(monkeypatch, nothing_is_left_behind):
    monkeypatch.setenv("ALLRANKS_STANDBY", "1")
    yield
    standby.end()


def waiting(ranks):
    """The processes of the world that stands by, when it has so many ranks; the others when not in time."""

    def missing():
        world = standby._next
        if world is not None:
            world._listen()
        return world is None or len(world.joined) < ranks

    assert not leftovers.gone(missing, seconds=300)
    return list(standby._next.pids.values())


def test_processes_that_are_not_wanted_any_more_say_nothing():
    """They may be starting when that is found out, and their directory is gone."""
    script = (
        "import os, time\nfrom allranks import launch\n"
        "for attempt in range(16):\n    launch(os.getpid, world_size=2 + 4 * (attempt % 2))\n"
        "    time.sleep(0.03 + 0.002 * attempt)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def who():
    return os.getpid(), dist.get_rank(), dist.get_world_size()


@pytest.mark.stamped(None)
def test_a_launch_takes_the_processes_that_wait_once_and_leaves_others_to_wait():
    launch(who, world_size=2)
    seen = set()
    for _ in range(3):
        ready = waiting(2)
        results = launch(who, world_size=2)
        assert [pid for pid, *_ in results] == ready
        assert [rest for _, *rest in results] == [[0, 2], [1, 2]]
        seen.update(ready)
    assert len(seen) == 6


@pytest.mark.parametrize("change", ["world_size", "environment", "backend"])
def test_processes_that_wait_for_something_else_are_not_used(monkeypatch, change):
    launch(who, world_size=2)
    ready = waiting(2)
    if change == "environment":
        monkeypatch.setenv("ANSWER", "42")
    results = launch(
        lambda: (os.getpid(), os.environ.get("ANSWER"), dist.get_backend()),
        world_size=3 if change == "world_size" else 2,
        backend="gloo" if change == "backend" else None,
    )
    # On a machine without GPUs, `backend='gloo'` is what there would have been.
    assert bool({pid for pid, *_ in results} & set(ready)) == (change == "backend")
    assert results[0][1] == ("42" if change == "environment" else None)


def test_where_the_notebook_stands_is_where_the_ranks_stand(monkeypatch, tmp_path):
    (tmp_path / "beside_it.py").write_text("answer = 42\n")
    launch(who, world_size=2)
    ready = waiting(2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def f():
        import beside_it

        return os.getpid(), os.getcwd(), beside_it.answer

    assert launch(f, world_size=2) == [(pid, str(tmp_path), 42) for pid in ready]


def test_a_process_that_died_while_it_waited_is_no_rank():
    launch(who, world_size=2)
    ready = waiting(2)
    os.kill(ready[1], signal.SIGKILL)
    assert not leftovers.gone(lambda: not standby._next.keeper.poll(), seconds=60)  # it has said so
    assert not {pid for pid, *_ in launch(who, world_size=2)} & set(ready)


def test_a_world_whose_folder_was_removed_while_it_waited_is_not_used():
    """At the end of a session systemd empties /dev/shm (RemoveIPC), and kernels may live on."""
    launch(who, world_size=2)
    ready = waiting(2)
    shutil.rmtree(standby._next.directory)
    assert not {pid for pid, *_ in launch(who, world_size=2)} & set(ready)


def test_seeds_outputs_and_errors_are_those_of_new_processes(capsys):
    import random

    def draw():
        print("here")
        return random.random()

    first = launch(draw, world_size=2)
    waiting(2)
    assert launch(draw, world_size=2) == first
    assert capsys.readouterr().out == "[rank 0] here\n[rank 1] here\n" * 2
    waiting(2)
    with pytest.raises(launch.RankFailed, match=r"^ranks 0, 1 raised ZeroDivisionError"):
        launch(lambda: 1 / 0, world_size=2)
    waiting(2)
    assert launch(draw, world_size=2) == first


def test_who_waits_in_vain_ends(monkeypatch):
    monkeypatch.setattr(standby, "SECONDS", 6)
    launch(who, world_size=2)
    assert not leftovers.gone(lambda: standby._next._listen() or not standby._next.pids, seconds=60)
    ready = list(standby._next.pids.values())
    assert not leftovers.gone(lambda: any(os.path.exists(f"/proc/{pid}") for pid in ready), seconds=60)
    # their keeper ends them first, and then removes what they shared
    assert not leftovers.gone(lambda: leftovers.directories(os.getpid()), seconds=60)
    assert len(launch(who, world_size=2)) == 2


def test_nobody_waits_where_it_is_switched_off_and_in_programs(monkeypatch):
    for setting in ("0", None):
        monkeypatch.setenv("ALLRANKS_STANDBY", setting) if setting else monkeypatch.delenv("ALLRANKS_STANDBY")
        launch(who, world_size=2)
        assert standby._next is None


def test_where_it_is_switched_off_no_rank_imports_what_the_server_is_about_to_load():
    script = "import sys\nfrom allranks import launch\nprint(launch(lambda: [*sys.modules], world_size=1)[0])"
    environment = {**os.environ, "ALLRANKS_STANDBY": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, env=environment
    )
    assert set(keeper.FIRST + keeper.THEN) <= set(ast.literal_eval(done.stdout)), done.stderr


def test_those_who_wait_end_with_the_program_and_are_not_its_childrens(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time\nfrom allranks import launch\nfrom allranks.launch import standby\n"
        "launch(len, 'ab', world_size=2)\n"
        "while standby._next._listen() or len(standby._next.joined) < 2: time.sleep(0.01)\n"
        "print(*standby._next.pids.values(), flush=True)\n"
        "if os.fork() == 0:\n    assert standby._next is None\n"
        "    print(launch(len, 'ab', world_size=2), flush=True)\n"
        "    standby.end()\n    os._exit(0)\n"
        "os.wait()\nprint(launch(os.getpid, world_size=2), flush=True)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600)
    ready, of_the_child, of_the_parent = done.stdout.splitlines()
    assert (of_the_child, done.stderr) == ("[2, 2]", "")
    assert of_the_parent == str([*map(int, ready.split())])


def test_a_process_that_waits_says_so_in_a_list_of_processes():
    launch(who, world_size=2)
    names = []
    for pid in waiting(2):
        with open(f"/proc/{pid}/comm") as comm:
            names.append(comm.read().strip())
    assert names == ["rank 0", "rank 1"]
