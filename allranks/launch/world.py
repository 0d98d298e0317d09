"""How does a world of ranks begin, run and end? Whatever happens, it ends here, and leaves nothing behind.

One loop waits for three things at once: what ranks report, processes that end, and the deadline.
"""

import contextlib
import math
import os
import shutil
import signal
import socket
import sys
import time
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from multiprocessing import Pipe, connection
from numbers import Real

from allranks.launch import blame, output, packing, rank, recorder, server, stacks
from allranks.launch.bars import Display
from allranks.launch.blame import Outcome
from allranks.launch.plan import make_plan

GRACE = 0.5  # seconds that ranks have to fail too, after the first one did
ANSWER = 0.4  # seconds that ranks have to say where they stand
FORCED = 0.1  # seconds that it takes to learn it without their help
GLANCE = 0.05  # seconds between two looks at what ranks print


def launch(fn, /, *args, world_size=4, timeout=60.0, backend=None, **kwargs):
    """Run `fn(*args, **kwargs)` on `world_size` fresh processes; return their results, indexed by rank.

    In each process the default process group is ready, so `fn` is ordinary `torch.distributed` code.
    The backend is NCCL when there is a GPU for every rank, else gloo on the CPU; `backend` is 'nccl',
    'gloo', or 'cuda:gloo' for ranks that share GPUs. Each rank has the environment that torchrun gives
    (RANK, WORLD_SIZE, …), its own seed (the rank), one compute thread unless OMP_NUM_THREADS says
    otherwise, and its GPU as the current device. Arguments are copies, and so is what a function reads from
    the notebook: changes stay on the rank; only the result comes back, its tensors on the CPU.

    Raises RankFailed if a rank raises or dies, RanksTimedOut if one still runs after `timeout` seconds,
    and ValueError or TypeError, before anything starts, for what is not possible.
    """
    _check(fn, timeout)
    with World(make_plan(world_size, backend), float(timeout)) as world:
        packing.save_call(fn, args, kwargs, world.path("call"))
        world.run()
        return [packing.load(world.path(f"result-{r}")) for r in world.ranks]


def _check(fn, timeout):
    if "ALLRANKS_WORLD" in os.environ:
        raise RuntimeError(
            "launch was called on a rank: a rank is already one process of a world. Call launch in the "
            "notebook; for fewer ranks, use dist.new_group."
        )
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise RuntimeError(
            "launch was called under torchrun, which has started the ranks already: "
            "call dist.init_process_group() and then the function itself."
        )
    if not callable(fn):
        raise TypeError(
            f"launch needs a function, and was given {type(fn).__name__}: "
            "write launch(f, x) to run f(x) on every rank, not launch(f(x))."
        )
    if any(asks(fn) for asks in (isasyncgenfunction, iscoroutinefunction, isgeneratorfunction)):
        raise TypeError(
            f"launch needs a function that returns its result, and {getattr(fn, '__name__', fn)} is a "
            "generator or coroutine function: call it in an ordinary one, by list(…) or asyncio.run(…)."
        )
    if not isinstance(timeout, Real) or isinstance(timeout, bool) or not 0 < timeout < math.inf:
        raise ValueError(
            f"timeout={timeout!r}: give a number of seconds above 0; every launch has a deadline."
        )


class World:
    """The processes of one launch, and everything that has to be cleaned up after them."""

    def __init__(self, plan, timeout):
        self.plan = plan
        self.timeout = timeout
        self.ranks = range(plan.world_size)
        self.outcomes = [Outcome("running") for _ in self.ranks]
        self.joined, self.answered = set(), set()
        self.processes, self.pipes = [], []
        self.progress = Display()
        self.directory = packing.make_directory()
        self.outputs = [output.Output(r, self.path(f"output-{r}")) for r in self.ranks]
        self.port = socket.socket()

    def path(self, name):
        return os.path.join(self.directory, name)

    def __enter__(self):
        return self

    def run(self):
        """Return when every rank has returned; otherwise end them all and raise what explains it."""
        error = None
        try:
            self._start()
            self._collect(self.deadline, until=lambda: not self._running() or self._failed())
            if self._failed():
                grace = min(self.deadline, time.monotonic() + GRACE)
                self._collect(grace, until=lambda: not self._running())
                error = blame.explain(list(self.outcomes), *self._where_ranks_stand())
            elif self._running():
                error = blame.timed_out(list(self.outcomes), *self._where_ranks_stand(), self.timeout)
        except KeyboardInterrupt:
            frames, _ = self._where_ranks_stand()
            error = blame.interrupted(self.outcomes, frames)
        if error:
            self._end()
        self._show(last=True)
        if error:
            raise error from None

    def _start(self):
        """Start the processes; return when all of them exist."""
        environments = self._environments()
        pairs = [Pipe() for _ in self.ranks]
        self.pipes = [here for here, _ in pairs]
        arguments = [(r, self.plan, self.directory, environments[r], pairs[r][1]) for r in self.ranks]
        try:
            self.processes = server.make(rank.live, arguments)
            server.start(self.processes)
        finally:
            for _, there in pairs:
                there.close()
        self.deadline = time.monotonic() + self.timeout

    def __exit__(self, *_):
        self._end()
        self.progress.close()
        for pipe in self.pipes:
            pipe.close()
        self.port.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _environments(self):
        """What torchrun would set, for each rank.

        MASTER_PORT is bound here and not listened on: nobody else can take it, and a function that calls
        `init_process_group` or `rpc.init_rpc` itself can.
        """
        self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port.bind(("127.0.0.1", 0))
        loopback = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
        common = {
            **({"GLOO_SOCKET_IFNAME": loopback, "TP_SOCKET_IFNAME": loopback} if loopback else {}),
            "OMP_NUM_THREADS": "1",
            **os.environ,
            "ALLRANKS_WORLD": self.directory,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port.getsockname()[1]),
            "WORLD_SIZE": str(self.plan.world_size),
            "LOCAL_WORLD_SIZE": str(self.plan.world_size),
            "GROUP_RANK": "0",
        }
        on_cpu = {"CUDA_VISIBLE_DEVICES": ""}
        return [
            {
                **common,
                "RANK": str(r),
                "LOCAL_RANK": str(r),
                **(on_cpu if self.plan.devices[r] is None else {}),
            }
            for r in self.ranks
        ]

    def _started(self):
        return {r: process for r, process in enumerate(self.processes) if process.pid is not None}

    def _running(self):
        return [r for r in self.ranks if self.outcomes[r].state == "running"]

    def _failed(self):
        return [r for r in self.ranks if self.outcomes[r].state in ("raised", "died", "stopped")]

    def _collect(self, deadline, until):
        """Take in reports and deaths, and show output, until `until()` or the deadline."""
        live = not output.is_ordered()
        while not until() and (left := deadline - time.monotonic()) > 0:
            sources = {self.pipes[r]: r for r in self._running()}
            sources |= {self.processes[r].sentinel: r for r in self._running()}
            for source in connection.wait(list(sources), min(left, GLANCE)):
                self._take(sources[source])
            if live:
                self._show()
            self._stop_the_talkative()

    def _take(self, r):
        """Take in all that rank `r` has reported; if it ended without a result, it died."""
        ended = connection.wait([self.processes[r].sentinel], 0)
        try:
            while self.pipes[r].poll():
                kind, detail = self.pipes[r].recv()
                if kind == "progress":
                    self.progress.update(*detail)
                elif kind == "joined":
                    self._join(r)
                elif kind == "standing":
                    self.answered.add(r)
                else:
                    self.outcomes[r] = Outcome(kind, detail)
        except (EOFError, OSError):  # the other end is gone: the process is about to be
            self.answered.add(r)
            ended = connection.wait([self.processes[r].sentinel], 1)
        if ended and self.outcomes[r].state == "running":
            self.processes[r].join()
            self.outcomes[r] = Outcome("died", self.processes[r].exitcode)

    def _join(self, r):
        """Note that rank `r` is connected to all others; when all are, let them call the function."""
        self.joined.add(r)
        if len(self.joined) == len(self.ranks):
            for pipe in self.pipes:
                with contextlib.suppress(OSError):  # one may have died by now
                    pipe.send("begin")

    def _show(self, last=False):
        for one in self.outputs:
            one.show(last)

    def _stop_the_talkative(self):
        for r in self._running():
            if self.outputs[r].printed() > output.ALLOWED:
                self.outcomes[r] = Outcome(
                    "stopped", f"printed more than {output.ALLOWED:,} bytes and was stopped"
                )

    def _where_ranks_stand(self):
        """Ask every rank that still lives; return all ranks' stacks, and the collectives they entered."""
        asked = {self.pipes[r]: r for r, process in self._started().items() if process.is_alive()}
        for pipe in asked:
            with contextlib.suppress(OSError):  # it may end just now
                pipe.send("where")
        until = time.monotonic() + ANSWER
        while (left := until - time.monotonic()) > 0:
            if not (mute := [pipe for pipe, r in asked.items() if r not in self.answered]):
                break
            for pipe in connection.wait(mute, left):
                self._take(asked[pipe])
        else:  # somebody did not answer: C code there does not let Python run
            for r in set(asked.values()) - self.answered:
                stacks.force(self.processes[r].pid)
            time.sleep(FORCED)
        frames = [stacks.read(self.path(f"stacks-{r}")) for r in self.ranks]
        return frames, [recorder.read(self.path(f"collectives-{r}")) for r in self.ranks]

    def _end(self):
        """End every process: those that returned by themselves, all others and what they started by force."""
        started = self._started()
        for r, process in started.items():
            if self.outcomes[r].state != "returned":
                _kill_group(process.pid)
        for process in started.values():
            process.join(1)
            _kill_group(process.pid)  # what it left behind; and the process, if it is stuck in its exit
            process.join()


def _kill_group(pid):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL) if hasattr(os, "killpg") else os.kill(pid, signal.SIGTERM)
        return
    with contextlib.suppress(ProcessLookupError):  # it has not made a group of its own yet
        os.kill(pid, signal.SIGKILL)
