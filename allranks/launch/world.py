"""How does a world of ranks begin, run and end? Whatever happens, it ends here, and leaves nothing behind.

One loop waits for three things at once: what ranks report, what their keeper reports of processes that
ended, and the deadline.
"""

import contextlib
import os
import shutil
import signal
import time
from multiprocessing import connection

from allranks.launch import blame, notebook, output, packing, recorder, server, stacks
from allranks.launch.bars import Display
from allranks.launch.blame import Outcome, View
from allranks.launch.patience import Patience
from allranks.launch.request import ask

START = 120.0  # seconds that ranks may take to start, the fork server included, if the reader gives them less
GRACE = 0.5  # seconds that ranks have to fail too, after the first one did
ANSWER = 0.4  # seconds that ranks have to say where they stand
FORCED = 0.1  # seconds that it takes to learn it without their help
GLANCE = 0.05  # seconds between two looks at what ranks print, and at interrupts
END = 5.0  # seconds that a keeper has to end its world

ORPHANED = "ended with the process that they were forked from, which was killed"


class World:
    """The processes of one launch, and everything that has to be cleaned up after them.

    To make one asks for the processes, and does not wait for them. A `standby` world is one for a launch that
    may come: for so many seconds its ranks wait, connected, for the function that they will call.
    """

    def __init__(self, plan, standby=0):
        self.plan, self.environment = plan, dict(os.environ)
        self.ranks = range(plan.world_size)
        self.outcomes = [Outcome("running") for _ in self.ranks]
        self.joined, self.answered, self.silent = set(), set(), set()
        self.pids, self.keeper_pid = {}, None
        self.refused, self.is_lost = "", False
        self.best_before = time.monotonic() + standby - END
        self.progress = Display()
        try:
            self.directory, self.ends, self.keeper, self.pipes = ask(plan, self.environment, standby)
        except OSError as error:
            raise blame.refused(f"{type(error).__name__}: {error}") from None
        self.outputs = [output.Output(r, self.path(f"output-{r}")) for r in self.ranks]

    def path(self, name):
        return os.path.join(self.directory, name)

    def is_ready_for(self, plan):
        """True if this standby world is what a new one would be, and nothing has happened to it."""
        if self.plan != plan or self.environment != dict(os.environ) or time.monotonic() > self.best_before:
            return False
        self._listen()
        is_whole = os.path.exists(self.path("world")) and not (self.refused or self.silent)
        return server.is_alive() and is_whole and not (self.is_lost or self._failed())

    def use(self):
        """Keep a standby world for as long as its function takes; if its ranks have not started, let them."""
        self._tell_keeper("now")

    def run(self, place, timeout, interrupts):
        """Let all ranks call the function in the file `call`, from `place` (see `carried`).

        Return when they have; or end them, and raise what explains it.
        """
        self.interrupts = interrupts
        error = self._begin(timeout) or self._finish(place, timeout)
        if self.keeper_pid:
            self._tell_keeper("end")
        if error:
            self._wait_for_the_end()
        self._show(last=True)
        if error:
            raise error from None

    def results(self):
        """What the ranks have returned, in their order."""
        return [packing.load_result(r, self.path(f"result-{r}")) for r in self.ranks]

    def close(self):
        """End what is left, and remove all traces.

        A keeper that has not answered yet sees its connection closed, and removes what its ranks still write.
        """
        if self.keeper_pid:
            self._tell_keeper("end")
        self._wait_for_the_end()
        self.progress.close()
        self.abandon()
        shutil.rmtree(self.directory, ignore_errors=True)

    def abandon(self):
        """Close all connections: the keeper ends everything, and removes the directory."""
        for end in self.ends:
            end.close()

    def _begin(self, timeout):
        """Wait until all ranks have joined; return None, or the exception that explains why not."""
        start = time.monotonic()

        def is_over():
            have_joined = len(self.joined) == len(self.ranks)
            late = time.monotonic() > start + timeout
            return (
                have_joined or self._failed() or self.is_lost or self.refused or (late and self._is_stopped())
            )

        self._listen()
        self._collect(lambda: start + max(timeout, START) - time.monotonic(), until=is_over)
        if self.interrupts.came():
            return blame.interrupted(self._view()) if self.pids else blame.Interrupted("no rank was started")
        if self.refused:
            return blame.refused(self.refused)
        if self.is_lost:
            return blame.NotStarted("no rank was started: the process that ranks are forked from ended")
        if self._failed():
            return self._explained()
        if len(self.joined) < len(self.ranks):
            missing = [r for r in self.ranks if r not in self.joined]
            return blame.not_started(self._view(), missing, time.monotonic() - start, self._is_stopped())
        return None

    def _finish(self, place, timeout):
        """Wait until all ranks have returned; return None, or the exception that explains why not."""
        self._tell(self.ranks, "begin", place)
        self._be_patient(timeout, until=self._is_over)
        if self.interrupts.came():
            return blame.interrupted(self._view())
        if self._failed():
            return self._explained()
        if self._running():
            return blame.timed_out(self._view(), timeout)
        nccl_agrees = self.plan.rules or "nccl" in self.plan.backend
        if nccl_agrees or recorder.agree([outcome.detail for outcome in self.outcomes]):
            return None
        view = self._view()
        if recorder.disagreement(view.histories):
            return blame.disagreed(view)
        if odd := blame.odd_shapes(view):
            notebook.warn(odd)
        return None

    def _explained(self):
        self._be_patient(GRACE, until=lambda: not self._running())
        return blame.explain(self._view())

    def _be_patient(self, seconds, until):
        """Collect until `until()`, for so many seconds in which no rank waits for a processor."""
        running = [self.pids[r] for r in self._running() if r in self.pids]
        self._collect(Patience(seconds, running).left, until)

    def _running(self):
        return [r for r in self.ranks if self.outcomes[r].state == "running"]

    def _failed(self):
        return [r for r in self.ranks if self.outcomes[r].state in ("raised", "died", "stopped")]

    def _is_over(self):
        return self._failed() or not self._running()

    def _collect(self, seconds_left, until):
        """Take in reports and deaths, and show output, until `until()`, an interrupt, or none are left."""
        live = not output.is_ordered()
        left = GLANCE
        while left > 0 and not until() and not self.interrupts.came():
            left = seconds_left()
            self._listen(max(0, min(left, GLANCE)))  # also if this process was not there until after it
            if live:
                self._show()
            self._stop_the_talkative()

    def _listen(self, seconds=0):
        """Take in what ranks and their keeper report within so many seconds."""
        sources = {self.pipes[r]: r for r in self._running() if r not in self.silent}
        if not self.is_lost:
            sources[self.keeper] = None
        for source in connection.wait(list(sources), seconds):
            if sources[source] is None:
                self._hear_the_keeper()
            else:
                self._take(sources[source])

    def _hear_the_keeper(self):
        try:
            while self.keeper.poll():
                kind, detail = self.keeper.recv()
                if kind == "started":
                    self.keeper_pid, pids = detail
                    self.pids = dict(enumerate(pids))
                elif kind == "refused":
                    self.refused = detail
                else:
                    self._take(*detail)
        except (EOFError, OSError):
            self.is_lost = True
            for r in self._running() if self.pids else ():
                self._take(r)
                if self.outcomes[r].state == "running":
                    self.outcomes[r] = Outcome("stopped", ORPHANED)

    def _take(self, r, exit_code=None):
        """Take in all that rank `r` has reported; if it ended without a result, it died."""
        try:
            while self.pipes[r].poll():
                kind, detail = self.pipes[r].recv()
                if kind == "progress":
                    self.progress.update(*detail)
                elif kind == "joined":
                    self.joined.add(r)
                elif kind == "standing":
                    self.answered.add(r)
                else:
                    self.outcomes[r] = Outcome(kind, detail)
        except (EOFError, OSError):  # the other end is gone: its keeper will say why
            self.silent.add(r)
            self.answered.add(r)
        if exit_code is not None:
            self.pids.pop(r, None)
            if self.outcomes[r].state == "running":
                self.outcomes[r] = Outcome("died", exit_code)

    def _tell(self, ranks, *what):
        for r in ranks:
            with contextlib.suppress(OSError):  # one may have died by now
                self.pipes[r].send(what)

    def _tell_keeper(self, what):
        with contextlib.suppress(OSError):
            self.keeper.send(what)

    def _show(self, last=False):
        for one in self.outputs:
            one.show(last)

    def _stop_the_talkative(self):
        for r in self._running():
            if r in self.pids and self.outputs[r].printed() > output.ALLOWED:
                why = f"printed more than {output.ALLOWED:,} bytes and {{were}} stopped"
                self.outcomes[r] = Outcome("stopped", why)
                stacks.force(self.pids[r])
                time.sleep(GLANCE)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pids[r], signal.SIGSTOP)

    def _is_stopped(self):
        """True if ranks cannot start because a signal has stopped one, or what they are forked from."""
        return any(map(stacks.is_stopped, (server.pid(), self.keeper_pid, *self.pids.values())))

    def _view(self):
        """Ask the ranks that have neither returned nor ended where they stand and what they have entered.

        Return what is known. One that has returned has written what it entered.
        """
        stopped = [r for r, pid in self.pids.items() if stacks.is_stopped(pid)]
        over = ("stopped", "returned")
        asked = {r: pid for r, pid in self.pids.items() if self.outcomes[r].state not in over}
        self._tell(asked, "where")
        patience = Patience(ANSWER, asked.values())
        while (mute := asked.keys() - self.answered) and (left := patience.left()):
            pipes = {self.pipes[r]: r for r in mute}
            for pipe in connection.wait(list(pipes), left):
                self._take(pipes[pipe])
        for r in mute:  # C code there does not let Python run
            stacks.force(asked[r])
        if mute:
            Patience(FORCED, [asked[r] for r in mute]).wait()
        frames = [stacks.read(self.path(f"stacks-{r}")) for r in self.ranks]
        histories = [recorder.read(self.path(f"collectives-{r}")) for r in self.ranks]
        return View(list(self.outcomes), frames, histories, stopped)

    def _wait_for_the_end(self):
        """Return when the keeper has ended all processes, and itself."""
        until = time.monotonic() + (END if self.keeper_pid else 0)
        with contextlib.suppress(EOFError, OSError):
            while self.keeper.poll(max(0, until - time.monotonic())):
                self.keeper.recv()
        if self.is_lost or time.monotonic() > until:  # it was killed, or stopped
            for pid in (*self.pids.values(), self.keeper_pid):
                with contextlib.suppress(OSError, TypeError):
                    os.killpg(pid, signal.SIGKILL)
