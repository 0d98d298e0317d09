"""Nothing breaks `launch` for good, nothing is left, and nothing waits for ever."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from textwrap import dedent

import opened
import pytest
import torch.distributed as dist
from kernel import leftovers

from allranks import launch
from allranks.launch import RankFailed, RanksTimedOut, packing, server, world

pytestmark = pytest.mark.usefixtures("nothing_is_left_behind")
RANKS = "[0, 1]"


def works():
    return launch(dist.get_rank, world_size=2) == [0, 1]


def script(text, folder, timeout=600, **environment):
    """Run a program; return what it printed, and its status."""
    path, cache = folder.parent / f"{folder.name}.py", str(folder.parent / "torch")
    path.write_text(dedent(text))
    done = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, **environment},  # else torch makes it in TMPDIR
    )
    return done.stdout + done.stderr, done.returncode


@pytest.fixture
def interrupts():
    """Python raises KeyboardInterrupt, also where a shell started it in the background, deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# ---- again and again ----


def one_in_ten():
    raise ValueError("one in ten")


def test_many_launches_leave_nothing(request):
    """50, and with --every-test, thus every night, 1,000; each tenth of them fails."""
    launches = 1_000 if request.config.getoption("every_test") else 50
    assert works()
    before = opened.now()
    for number in range(launches):
        if number % 10:
            assert works()
        else:
            with pytest.raises(RankFailed, match="one in ten"):
                launch(one_in_ten, world_size=2)
    assert opened.since(before) == set()


# ---- the fork server ----


def test_a_child_that_was_forked_after_a_launch_can_launch_and_so_can_its_parent():
    assert works()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os._exit(0 if works() else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert works()


def test_a_fork_server_that_somebody_else_has_reaped_is_replaced():
    assert works()
    os.kill(server.pid(), signal.SIGKILL)
    os.waitpid(server.pid(), 0)
    assert works()


def test_a_fork_server_that_is_stopped_does_not_stop_the_clock(monkeypatch):
    monkeypatch.setattr(world, "START", 1.0)
    assert works()
    stopped = server.pid()
    os.kill(stopped, signal.SIGSTOP)
    try:
        with pytest.raises(RanksTimedOut) as caught:
            launch(dist.get_rank, world_size=2, timeout=0.3)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert re.fullmatch(
        r"ranks 0, 1 had not started after \d+ s · a signal has stopped them, or the process they come from",
        str(caught.value),
    )
    assert works()


def test_a_fork_server_of_the_programs_own_is_left_alone_and_a_long_temporary_folder_is_no_obstacle(tmp_path):
    said, status = script(
        """
        import multiprocessing, os, sys
        context = multiprocessing.get_context("forkserver")
        if __name__ == "__main__":
            child = context.Process(target=print, args=("mine",))
            child.start(); child.join()
            from multiprocessing.forkserver import _forkserver
            before = _forkserver._forkserver_pid
            from allranks import launch
            def f():
                import torch
                data = [torch.ones(3)] * 4
                return sum(len(x) for x in torch.utils.data.DataLoader(data, batch_size=2, num_workers=1))
            for _ in range(2):
                print(launch(f, world_size=2))
            assert _forkserver._forkserver_pid == before
        """,
        tmp_path,
    )
    assert (said, status) == ("mine\n[4, 4]\n[4, 4]\n", 0)
    long = tmp_path / ("x" * 120)
    long.mkdir()
    said, status = script(
        "from allranks import launch\nprint(launch(len, 'ab', world_size=2))", tmp_path, TMPDIR=str(long)
    )
    assert (said, status) == ("[2, 2]\n", 0)
    assert list(long.iterdir()) == []


# ---- processes ----


def test_what_a_thread_of_a_rank_starts_lives_on_when_the_thread_ends():
    def f():
        import queue

        started = queue.SimpleQueue()
        thread = threading.Thread(target=lambda: started.put(subprocess.Popen(["sleep", "1000"])))
        thread.start()
        thread.join()
        child = started.get()
        time.sleep(0.3)
        return child.poll()

    assert launch(f, world_size=2) == [None, None]


def test_a_process_that_left_its_session_ends_with_the_launch():
    def daemon():
        subprocess.Popen(["sh", "-c", "setsid sleep 1000 &"], start_new_session=True).wait()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)
        time.sleep(0.2)

    launch(daemon, world_size=2)
    with pytest.raises(launch.RankFailed):
        launch(lambda: (daemon(), 1 / 0), world_size=1)


def test_a_rank_that_ends_is_noticed_although_what_it_forked_lives():
    def f():
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(3)

    start = time.monotonic()
    with pytest.raises(launch.RankFailed, match="exited with code 3"):
        launch(f, world_size=1, timeout=1_000)
    assert time.monotonic() - start < 500


# ---- files ----


def test_a_world_removes_its_own_folder_and_no_other(tmp_path):
    other = tempfile.mkdtemp(prefix=f"allranks-{os.getpid()}-", dir=packing.SHARED_MEMORY)
    try:
        assert works()
        assert leftovers.directories(os.getpid()) == [other]
    finally:
        os.rmdir(other)


def test_what_ranks_write_for_multiprocessing_and_keep_of_their_output_goes(tmp_path):
    said, status = script(
        """
        import os, torch
        from allranks import launch
        def f():
            torch.multiprocessing.get_context("fork").Manager().list()
            print("x" * 300_000)
        launch(f, world_size=2)
        kept, = os.listdir(os.environ["TMPDIR"])
        print(len(os.listdir(os.path.join(os.environ["TMPDIR"], kept))), "kept", flush=True)
        os.kill(os.getpid(), 9)
        """,
        tmp_path,
        TMPDIR=str(tmp_path),
        ALLRANKS_OUTPUT="ordered",
    )
    assert said.endswith("2 kept\n") and status == -9
    assert leftovers.gone(lambda: os.listdir(tmp_path), seconds=60) == []


def test_a_program_whose_output_is_ascii_shows_what_ranks_print(tmp_path):
    said, status = script(
        """
        from allranks import launch
        from allranks.launch import output
        output.SHOWN = 20
        launch(lambda: print("α → β", "x" * 20), world_size=1)
        """,
        tmp_path,
        PYTHONIOENCODING="ascii",
    )
    assert said.startswith("[rank 0] \\u03b1 \\u2192 \\u03b2 xxxxxx") and status == 0


def test_a_program_without_standard_output_and_with_an_odd_path_can_launch(tmp_path):
    """Pipes would get the numbers 0, 1 and 2; and Python passes over a Path among the strings of sys.path."""
    said, status = script(
        """
        import os
        for number in range(3):
            os.close(number)
        import pathlib, sys
        sys.path.append(pathlib.Path("/a"))
        sys.stdin = sys.stdout = sys.stderr = None
        from allranks import launch
        os._exit(40 + sum(launch(lambda: print("hello") or 1, world_size=2)))
        """,
        tmp_path,
    )
    assert (said, status) == ("", 42)


class Wrong:
    def __reduce__(self):
        return int, ("not a number",)


def test_a_result_that_cannot_be_read_is_named():
    with pytest.raises(
        TypeError, match=r"^the result of rank 1 cannot be read here: ValueError: invalid literal"
    ):
        launch(lambda: Wrong() if dist.get_rank() else None, world_size=2)


@pytest.mark.parametrize("fails", [False, True])
def test_shared_memory_that_ranks_have_not_removed_goes_with_them(fails):
    def f():
        from multiprocessing import shared_memory

        name = shared_memory.SharedMemory(create=True, size=64).name
        if fails:
            raise ValueError(name)
        return name

    try:
        (name,) = launch(f, world_size=1)
    except RankFailed as error:
        name = str(error).rpartition(" ")[2]
    assert name.startswith("psm_") and not os.path.exists(f"/dev/shm/{name}")


# ---- interrupts ----


def test_an_interrupt_reaches_the_readers_own_code(interrupts):
    class Endless:
        def __reduce__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
            raise AssertionError("the interrupt did not reach this code")

    with pytest.raises(KeyboardInterrupt):
        launch(len, Endless(), world_size=2)


def test_cancelling_what_awaits_a_launch_ends_its_ranks():
    async def main():
        with contextlib.suppress(asyncio.TimeoutError):
            waits = asyncio.to_thread(launch, time.sleep, 1_000, world_size=2, timeout=1_000)
            await asyncio.wait_for(waits, 0.5)

    start = time.monotonic()
    asyncio.run(main())  # it waits for its threads
    assert time.monotonic() - start < 500
    assert works()


# ---- limits ----


def test_a_limit_on_processes_or_files_is_named_and_what_to_do(tmp_path):
    said, _ = script(
        """
        import os, resource
        from allranks import launch
        launch(len, "ab", world_size=2)
        def attempt(what, limit):
            before = resource.getrlimit(what)
            resource.setrlimit(what, (limit, before[1]))
            try:
                launch(len, "ab", world_size=8)
            except Exception as error:
                print(type(error).__name__, error, *error.__notes__, sep=" | ")
            resource.setrlimit(what, before)
        attempt(resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd")) + 4)
        attempt(resource.RLIMIT_NOFILE, 3)
        print(launch(len, "ab", world_size=2))
        """,
        tmp_path,
    )
    *reports, last = said.splitlines()
    expected = "LaunchError | no rank was started: OSError: [Errno 24] Too many open files | the limit on"
    assert [report.startswith(expected) for report in reports] == [True, True]
    assert last == "[2, 2]"


def test_a_keeper_that_cannot_be_forked_is_explained(monkeypatch):
    from allranks.launch import blame

    error = blame.refused("BlockingIOError: [Errno 11] Resource temporarily unavailable")
    assert str(error).startswith("no rank was started: BlockingIOError")
    assert error.__notes__[0].startswith("the limit on processes is reached (ulimit -u)")
