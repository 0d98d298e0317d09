"""Which rank is the cause, and which only suffered? One exception, one sentence, the same at every run.

A cause is a rank that died, or that raised an exception of its own. A rank whose peer left it in the middle
of a collective raises too ("connection closed by peer"): that is an echo, and never blamed while there is
a cause. If all ranks that did not return are echoes, the cause is a rank that returned too early. Ranks
that entered a collective differently are the cause of an abort that follows.
"""

import re
import signal
from collections import namedtuple

from allranks.launch import recorder, stacks

Outcome = namedtuple("Outcome", "state detail", defaults=(None,))
Outcome.__doc__ = """How a rank ended: 'running', 'returned', 'raised' (detail: a `stacks.Failure`),
'died' (detail: the exit code), 'stopped' (detail: why), or 'gone' (somebody else
ended it with the others)."""

FRAMES = 12  # of the reader's, in a traceback

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


def explain(outcomes, frames, histories):
    """Return the exception for ranks that ended as `outcomes` say, at least one of them badly.

    `frames[rank]` is where a rank stood (see `stacks.read`), `histories[rank]` what it had entered (see
    `recorder.read`).
    """
    returned = [r for r, outcome in enumerate(outcomes) if outcome.state == "returned"]
    failed = [r for r, outcome in enumerate(outcomes) if outcome.state in ("raised", "died", "stopped")]
    causes = [r for r in failed if not _is_echo(outcomes[r])]
    calls = recorder.disagreement(histories)
    if calls and all(_is_abort(outcomes[r]) for r in causes):
        causes, message = _odd_ones(calls), _told(calls)
    elif causes:
        phrases = {}
        for rank in causes:
            phrases.setdefault(_phrase(outcomes[rank]), []).append(rank)
        message = " · ".join(f"{name(ranks)} {phrase}" for phrase, ranks in phrases.items())
    elif returned:
        causes, message = returned, _returned_early(returned, outcomes, frames)
    else:
        causes = failed
        message = f"{name(causes[:1])} {_phrase(outcomes[causes[0]])}"
    return _with_note(RankFailed(message, causes), outcomes, frames)


def timed_out(outcomes, frames, histories, timeout):
    """Return the exception for ranks that are still running `timeout` seconds after they started."""
    running = [rank for rank, outcome in enumerate(outcomes) if outcome.state == "running"]
    message = f"{name(running)} {_were(running)} still running after {timeout:g} s"
    if calls := recorder.disagreement(histories):
        message += f" · {_told(calls)}"
    return _with_note(RanksTimedOut(message, running), outcomes, frames)


def interrupted(outcomes, frames):
    """Return the exception that says where the ranks stood when the interrupt came."""
    return _with_note(Interrupted("all ranks were ended"), outcomes, frames)


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


def _is_echo(outcome):
    return outcome.state == "raised" and outcome.detail.lost_peer


def _is_abort(outcome):
    return outcome.state == "died" and outcome.detail == -signal.SIGABRT


def _told(calls):
    return " · ".join(f"{name(ranks)} entered {what}" for what, ranks in calls.items())


def _odd_ones(calls):
    """Return the ranks outside the largest party; all of them if no party is the largest."""
    parties = sorted(calls.values(), key=len)
    odd = parties if len(parties[-1]) == len(parties[-2]) else parties[:-1]
    return sorted(rank for party in odd for rank in party)


def _returned_early(returned, outcomes, frames):
    left = [r for r, outcome in enumerate(outcomes) if outcome.state != "returned"]
    waiting = sorted({stacks.waits_in(_stood(outcomes[r], frames[r])) for r in left} - {None})
    where = f" in {' and '.join(waiting)}" if waiting else ""
    return f"{name(returned)} returned while {name(left)} {_were(left)} still waiting{where}"


def _were(ranks):
    return "was" if len(ranks) == 1 else "were"


def _with_note(error, outcomes, frames):
    error.add_note(_where_all_stand(outcomes, frames))
    return error


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
    if outcome.state in ("died", "stopped", "gone") and not frames:
        return " left no word"
    if outcome.state != "raised" or _is_echo(outcome):  # an echo comes or not, as chance has it: do not say
        return f": {stacks.describe(_stood(outcome, frames))}"
    return "\n".join([" raised", *_traceback(outcome.detail)])


def _traceback(failure):
    """The reader's frames with their source, then the library frame that raised, then the exception."""
    mine = [frame for frame in failure.frames if not stacks.is_library(frame)]
    lines = []
    for number, frame in enumerate(mine):
        if number < FRAMES // 2 or number >= len(mine) - FRAMES // 2:
            lines += [f"  {stacks.place(frame)}", f"    {stacks.source(frame)}"]
        elif number == FRAMES // 2:
            lines.append(f"  … {len(mine) - FRAMES} more")
    last = failure.frames[-1] if failure.frames else None
    if last and stacks.is_library(last) and not stacks.is_launcher(last):
        lines.append(f"  {stacks.place(last)}")
    lines.append(f"  {failure.kind}: {failure.message}".rstrip(": "))
    return [*lines, *(f"  {line}" for line in failure.more)]
