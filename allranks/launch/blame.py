"""Which rank is the cause, and which only suffered? One exception, one sentence, the same at every run.

A cause is a rank that died, or that raised an exception of its own. A rank whose peer left it in the middle
of a collective raises too ("connection closed by peer"): that is an echo, and never blamed while there is
a cause. If all ranks that did not return are echoes, the cause is a rank that returned too early.
"""

import re
import signal
from collections import namedtuple

from allranks.launch import stacks

Outcome = namedtuple("Outcome", "state detail", defaults=(None,))
Outcome.__doc__ = """How a rank ended: 'running', 'returned' (its last collective), 'raised' (a `stacks.Failure`),
'died' (an exit code), or 'stopped' (why)."""

SIGNALS = {
    signal.SIGSEGV: "died of SIGSEGV (segmentation fault)",
    signal.SIGABRT: "died of SIGABRT (a C++ library gave up; it may have printed why)",
    signal.SIGKILL: "was killed by SIGKILL (by a person, or for want of memory)",
}


class Rendered:
    """IPython shows this text instead of the launcher's own frames."""

    def _render_traceback_(self):
        return [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", [])]


class LaunchError(Rendered, RuntimeError):
    """A world that did not end well. The note says where each rank stood, in the reader's own lines."""


class Interrupted(Rendered, KeyboardInterrupt):
    """Ctrl-C, or the interrupt button, while ranks were running."""


class RankFailed(LaunchError):
    """A rank raised an exception, or died. `ranks` lists the ranks that are the cause."""

    def __init__(self, message, ranks):
        super().__init__(message)
        self.ranks = ranks


class RanksTimedOut(LaunchError, TimeoutError):
    """Ranks were still running at the deadline. `ranks` lists them."""

    def __init__(self, message, ranks):
        super().__init__(message)
        self.ranks = ranks


def explain(outcomes, frames, collectives):
    """Return the exception for ranks that ended as `outcomes` say, at least one of them badly.

    `frames[rank]` is where a rank stood (see `stacks.read`), `collectives[rank]` its last collective.
    """
    returned = [r for r, outcome in enumerate(outcomes) if outcome.state == "returned"]
    failed = [r for r, outcome in enumerate(outcomes) if outcome.state in ("raised", "died", "stopped")]
    causes = [r for r in failed if outcomes[r].state != "raised" or not outcomes[r].detail.lost_peer]
    unfinished = [r for r, outcome in enumerate(outcomes) if outcome.state != "returned"]
    if causes:
        phrases = {}
        for rank in causes:
            phrases.setdefault(_phrase(outcomes[rank]), []).append(rank)
        message = " · ".join(f"{name(ranks)} {phrase}" for phrase, ranks in phrases.items())
        message += _disagreement(collectives, " · ")
    elif message := _disagreement(collectives):
        causes = unfinished
    elif returned:
        causes = returned
        waiting = {stacks.waits_in(_stood(outcomes[r], frames[r])) for r in unfinished} - {None}
        where = f" in {' and '.join(sorted(waiting))}" if waiting else ""
        were = "was" if len(unfinished) == 1 else "were"
        message = f"{name(causes)} returned while {name(unfinished)} {were} still waiting{where}"
    else:
        causes = failed
        message = f"{name(causes[:1])} {_phrase(outcomes[causes[0]])}"
    error = RankFailed(message, causes)
    error.add_note(_where_all_stand(outcomes, frames))
    return error


def timed_out(outcomes, frames, timeout):
    """Return the exception for ranks that are still running `timeout` seconds after they started."""
    running = [rank for rank, outcome in enumerate(outcomes) if outcome.state == "running"]
    were = "was" if len(running) == 1 else "were"
    error = RanksTimedOut(f"{name(running)} {were} still running after {timeout:g} s", running)
    error.add_note(_where_all_stand(outcomes, frames))
    return error


def interrupted(outcomes, frames):
    """Return the exception that says where the ranks stood when the interrupt came."""
    error = Interrupted("all ranks were ended")
    error.add_note(_where_all_stand(outcomes, frames))
    return error


def name(ranks):
    """Name ranks in a sentence: `rank 1`, `ranks 0, 2`."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _phrase(outcome):
    if outcome.state == "raised":
        return f"raised {outcome.detail.kind}: {_tidy(outcome.detail.message)}".rstrip(": ")
    if outcome.state == "stopped":
        return outcome.detail
    if outcome.detail >= 0:
        return f"exited with code {outcome.detail} before the function returned"
    number = -outcome.detail
    return SIGNALS.get(number, f"was killed by {signal.Signals(number).name}")


def _tidy(message):
    """Keep of a message what is the same at every run: its first line, without addresses and ports."""
    line = message.strip().split("\n")[0]
    line = re.sub(r"\[\S*\.(?:cc|cpp|h):\d+\] ?", "", line)
    line = re.sub(r"\[?127\.0\.0\.1\]?:\d+", "127.0.0.1", line)
    return re.sub(r"0x[0-9a-fA-F]+", "0x…", line)[:300]


def _disagreement(collectives, before=""):
    """Say which ranks entered what, if they entered one collective with different tensors, or different ones."""
    entered = {}
    for rank, last in sorted(collectives.items()):
        if last:
            entered.setdefault((last.group, last.number), {}).setdefault(
                (last.name, last.tensors), []
            ).append(rank)
    for calls in entered.values():
        if len(calls) > 1:
            told = [
                f"{name(ranks)} entered {what} with {tensors}" for (what, tensors), ranks in calls.items()
            ]
            return before + " · ".join(told)
    return ""


def _stood(outcome, frames):
    return outcome.detail.frames if outcome.state == "raised" else frames


def _where_all_stand(outcomes, frames):
    """One paragraph for each place, with all the ranks that stand there."""
    places = {}
    for rank, outcome in enumerate(outcomes):
        places.setdefault(_where_one_stands(outcome, frames[rank]), []).append(rank)
    return "\n".join(f"{name(ranks)}{place}" for place, ranks in places.items())


def _where_one_stands(outcome, frames):
    if outcome.state == "returned":
        return " returned"
    if outcome.state == "died" and not frames:
        return " left no word"
    if outcome.state != "raised":
        return f": {stacks.describe(frames)}"
    failure = outcome.detail
    if failure.lost_peer:
        return f": {stacks.describe(failure.frames)}, lost a peer"
    return "\n".join([" raised", *_traceback(failure)])


def _traceback(failure):
    """The reader's frames with their source, then the library frame that raised, then the exception."""
    mine = [frame for frame in failure.frames if not stacks.is_library(frame)]
    lines = []
    for frame in mine:
        lines += [f"  {stacks.place(frame)}", f"    {stacks.source(frame)}"]
    if (
        failure.frames
        and stacks.is_library(failure.frames[-1])
        and not stacks.is_launcher(failure.frames[-1])
    ):
        lines.append(f"  {stacks.place(failure.frames[-1])}")
    lines.append(f"  {failure.kind}: {failure.message}".rstrip(": "))
    if failure.cause:
        lines.append(f"  caused by {failure.cause}")
    return lines
