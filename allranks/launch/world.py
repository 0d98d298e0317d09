"""How does a world of ranks begin, run and end? Whatever happens, it ends here, and leaves nothing behind.

One loop waits for three things at once: what ranks report, processes that end, and the deadline.
"""

import contextlib
import os
import shutil
import signal
import socket
import sys
import time
from multiprocessing import Pipe, connection

from allranks.launch import blame, output, packing, rank, recorder, server, stacks
from allranks.launch.bars import Display
from allranks.launch.blame import Outcome

GRACE = 0.5  # seconds that ranks have to fail too, after the first one did
ANSWER = 0.4  # seconds that ranks have to say where they stand
FORCED = 0.1  # seconds that it takes to learn it without their help
GLANCE = 0.05  # seconds between two looks at what ranks print


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
                self._notice_dead_server()
                error = blame.explain(list(self.outcomes), *self._where_ranks_stand())
            elif self._running():
                error = blame.timed_out(list(self.outcomes), *self._where_ranks_stand(), self.timeout)
        except KeyboardInterrupt:
            frames, _ = self._where_ranks_stand()
            error = blame.interrupted(self.outcomes, frames)
        if error:
            self._end()
        else:
            self._tell(self.ranks, "end")
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
            self._tell(self.ranks, "begin")

    def _tell(self, ranks, what):
        for r in ranks:
            with contextlib.suppress(OSError):  # one may have died by now
                self.pipes[r].send(what)

    def _show(self, last=False):
        for one in self.outputs:
            one.show(last)

    def _stop_the_talkative(self):
        for r in self._running():
            if self.outputs[r].printed() > output.ALLOWED:
                why = f"printed more than {output.ALLOWED:,} bytes and was stopped"
                self.outcomes[r] = Outcome("stopped", why)
                stacks.force(self.processes[r].pid)
                time.sleep(GLANCE)
                _signal_group(self.processes[r].pid, "SIGSTOP")

    def _notice_dead_server(self):
        unknown = Outcome("died", server.UNKNOWN)
        if unknown in self.outcomes and server.was_killed():
            why = "ended with the process that they were forked from, which was killed"
            self.outcomes = [Outcome("stopped", why) if o == unknown else o for o in self.outcomes]

    def _where_ranks_stand(self):
        """Ask every rank that still lives; return all ranks' stacks, and the collectives they entered."""
        alive = [r for r, process in self._started().items() if process.is_alive()]
        asked = {self.pipes[r]: r for r in alive if self.outcomes[r].state != "stopped"}
        self._tell(asked.values(), "where")
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
        self._tell(started, "end")
        for r, process in started.items():
            if self.outcomes[r].state != "returned":
                _signal_group(process.pid, "SIGKILL")
        for process in started.values():
            process.join(1)
            _signal_group(
                process.pid, "SIGKILL"
            )  # what it left behind; and the process, if it is stuck in its exit
            process.join()


def _signal_group(pid, name):
    """Send a signal to a rank and to all that it started; where there are no groups, end the rank."""
    number = getattr(signal, name, signal.SIGTERM)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number) if hasattr(os, "killpg") else os.kill(pid, number)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has no group of its own yet
        os.kill(pid, number)
