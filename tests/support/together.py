"""Try many answers to one task in the same worlds: the verdict of each, for a part of the time.

The check of each answer runs in a thread of its own, one at a time, until it launches ranks. What all of them
want to launch then runs in one world, one after the other. An answer whose ranks raise, die or hang gets a
world to itself, so its verdict is the one that a student reads.
"""

import contextlib
import os
import random
import sys
import tempfile
import threading
import time

import cloudpickle
import solved
import torch
import torch.distributed as dist

from allranks.check import labs
from allranks.check import verdict as verdict_of
from allranks.launch import LaunchError, launch, packing

cloudpickle.register_pickle_by_value(sys.modules[__name__])
FAILURES = "raised", "exited", "did not finish", "Error", "attribute"  # in verdicts about ranks that fail
PATIENCE = 1.0  # seconds that the ranks of an answer have to fail too, after the first one did


class Attempt:
    """The check of one answer; it stops at each launch, and goes on with what the ranks have returned."""

    def __init__(self, check, answers, fails):
        self.fails = fails
        self.wanted, self.line, self.outcome = None, None, None
        self.turn, self.stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.random = torch.get_rng_state(), random.getstate()
        self.thread = threading.Thread(target=self._run, args=(check, answers), daemon=True)
        self.thread.attempt = self
        self.thread.start()

    def _run(self, check, answers):
        self._wait()
        self.line = verdict_of(check.__wrapped__, *answers)
        self.stopped.release()

    def _wait(self):
        self.turn.acquire()
        torch.set_rng_state(self.random[0])
        random.setstate(self.random[1])

    def go_on(self):
        """Let it run until it is done, or wants ranks."""
        self.wanted = None
        self.turn.release()
        self.stopped.acquire()

    def launch(self, function, *args, **options):
        """In its thread: what `labs.launch` is."""
        self.wanted, self.outcome = (function, args, options), None
        self.random = torch.get_rng_state(), random.getstate()
        self.stopped.release()
        self._wait()
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def verdicts(tries):
    """The line of each (check, answers, fails) in `tries`, in their order.

    What `fails` gets worlds to itself at once; what fails and is not known to is tried twice.
    """
    alone = labs.launch
    attempts = [Attempt(*one) for one in tries]
    labs.launch = lambda *args, **options: threading.current_thread().attempt.launch(*args, **options)
    try:
        waiting = attempts
        while waiting:
            for attempt in waiting:
                attempt.go_on()
            waiting = [attempt for attempt in attempts if attempt.line is None]
            kinds = {}
            for attempt in waiting:
                _, _, options = attempt.wanted
                kind = (
                    attempt if attempt.fails else tuple(map(options.get, ("world_size", "backend", "rules")))
                )
                kinds.setdefault(kind, []).append(attempt)
            for together in kinds.values():
                _launch_together(together)
    finally:
        labs.launch = alone
    return [attempt.line for attempt in attempts]


def _launch_together(attempts):
    """Set `outcome` of each of `attempts`, which want as many ranks."""
    while len(attempts) > 1:
        calls = [attempt.wanted[:2] for attempt in attempts]
        options = attempts[0].wanted[2] | {"timeout": labs.SECONDS + 2 * len(attempts)}
        with tempfile.TemporaryDirectory(dir=packing.SHARED_MEMORY) as folder:
            with contextlib.suppress(LaunchError):
                launch(_each, calls, folder, **options)
            for number, attempt in enumerate(attempts):
                attempt.outcome = _read(folder, number, options["world_size"])
        culprit = next((a for a in attempts if a.outcome is None), None)
        if culprit:
            _launch_alone(culprit)
        attempts = [attempt for attempt in attempts if attempt.outcome is None]
    for attempt in attempts:
        _launch_alone(attempt)


def _read(folder, number, size):
    """What all ranks have returned in call `number`; None if one has not, or if it cannot be read."""
    try:
        return [packing.load_result(rank, f"{folder}/{number}-{rank}") for rank in range(size)]
    except (OSError, TypeError):
        return None


def _launch_alone(attempt):
    function, args, options = attempt.wanted
    try:
        attempt.outcome = launch(function, *args, **options)
    except Exception as failure:  # a result that cannot be read, too
        attempt.outcome = failure


def _each(calls, folder):
    """On a rank: write what each of `calls` returns to `folder`, up to the first that raises on any rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    for number, (function, args) in enumerate(calls):
        torch.manual_seed(rank)
        random.seed(rank)
        threads, environment = torch.get_num_threads(), dict(os.environ)
        file = f"{folder}/{number}-{rank}"
        try:
            packing.save_result(function(*args), f"{file}.part")
            store.set(f"answer {number}, rank {rank}", "returned")
        except Exception:
            store.set(f"answer {number}, rank {rank}", "raised")
            if not _all_are_done(store, number, size, PATIENCE):
                raise
        _all_are_done(store, number, size, 1e9)
        if b"raised" in [store.get(f"answer {number}, rank {r}") for r in range(size)]:
            return
        os.rename(f"{file}.part", file)
        torch.set_num_threads(threads)
        os.environ.clear()
        os.environ.update(environment)


def _all_are_done(store, number, size, seconds):
    """True if all ranks have done with an answer, within so many seconds."""
    until = time.monotonic() + seconds
    while not store.check([f"answer {number}, rank {r}" for r in range(size)]):
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def assert_verdicts(check, cases):
    """Assert that the verdict of `check` about each (answers, part) in `cases` has the part."""
    lines = verdicts([(check, answers, any(sign in part for sign in FAILURES)) for answers, part in cases])
    parts = [part for _, part in cases]
    wrong = [
        f"{part!r} is not in: {line}" for part, line in zip(parts, lines, strict=True) if part not in line
    ]
    assert not wrong, "\n".join(wrong)
    assert all(place.startswith("  rank") for line in lines for place in line.split("\n")[1:])


def assert_wrong(lab, tasks, *others):
    """Assert that each task of `lab` refuses what does nothing, or nothing useful (`solved.wrong`).

    `tasks` maps the name of a task to those of its functions, or lists tasks that have one.
    """
    pairs = solved.wrong(tasks, *others)
    counts = {task: len(tasks[task]) if isinstance(tasks, dict) else 1 for task in tasks}
    lines = verdicts(
        [
            (getattr(lab, task), [answer] * counts[task], answer in (solved.crash, solved.leave))
            for task, answer in pairs
        ]
    )
    for (task, answer), line in zip(pairs, lines, strict=True):
        assert line[0] == "✗", f"{task} accepts {answer!r}: {line}"
