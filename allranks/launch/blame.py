"""Which rank is the cause, and which only suffered? One exception, one sentence, the same at every run.

A cause is a rank that died, or that raised an exception of its own. A rank whose peer left it in the middle
of a collective, or did not come in time, raises too: that is an echo (see `stacks.Failure`), and never blamed
while there is a cause. If all ranks that failed are echoes, the cause is a rank that they waited for: one
that returned, left the group, or did not come. Ranks that entered a collective differently are the cause of
an abort that follows, and of results that are wrong although all ranks returned.
"""

import re
import signal
from collections import namedtuple

from allranks.launch import hints, recorder, stacks

Outcome = namedtuple("Outcome", "state detail", defaults=(None,))
Outcome.__doc__ = """How a rank ended: 'running', 'returned', 'raised' (detail: a `stacks.Failure`),
'died' (detail: the exit code), 'stopped' (detail: why), or 'gone' (somebody else
ended it with the others)."""

FRAMES = 12  # of the reader's, in a traceback
MISSED = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")
LISTED = 8  # ranks; more are not counted up if it is all of them

SIGNALS = {
    signal.SIGSEGV: "died of SIGSEGV (segmentation fault)",
    signal.SIGABRT: "died of SIGABRT (a C++ library gave up; it may have printed why)",
    signal.SIGKILL: "{were} killed by SIGKILL (by a person, or because memory ran out)",
}


class Rendered:
    """IPython shows this text instead of the launcher's own frames."""

    def _render_traceback_(self):
        return [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", [])]


class LaunchError(Rendered, RuntimeError):
    """A world that did not end well. `ranks` are the cause; the note says where all ranks stood.

    `places` says it in a line each: `rank 0: Cell In[3], line 4, in exchange, waiting in recv`. `histories`
    is what each rank had entered, with lines (see `recorder.History`), and `frames` where it stood;
    `allranks.hang` reads both.
    """

    def __init__(self, message, ranks=()):
        super().__init__(message)
        self.ranks, self.places, self.histories, self.frames = list(ranks), [], [], []


class NotStarted(LaunchError):
    """There are no ranks, for a reason outside of them."""


class RankFailed(LaunchError):
    """A rank raised an exception, or died, or entered another collective than its peers."""


class RanksTimedOut(LaunchError, TimeoutError):
    """Ranks were still running at the deadline, or had not started. `ranks` lists them."""


class Interrupted(Rendered, KeyboardInterrupt):
    """Ctrl-C, or the interrupt button, while ranks were running."""


class View(namedtuple("View", "outcomes frames histories stopped", defaults=((),))):
    """What is known about all ranks when a world has ended badly, by rank.

    `frames` is where one stood (see `stacks.read`), `histories` what it had entered (see `recorder.read`);
    `stopped` lists ranks that a signal has stopped.
    """

    def ranks(self, *states):
        return [rank for rank, outcome in enumerate(self.outcomes) if outcome.state in states]


def explain(view):
    """Return the exception for ranks of which at least one ended badly."""
    failed = view.ranks("raised", "died", "stopped")
    causes = [rank for rank in failed if not _is_echo(view.outcomes[rank])]
    calls = recorder.disagreement(view.histories)
    if calls and all(_is_abort(view.outcomes[rank]) for rank in causes):
        causes, message = _odd_ones(calls), _told(view, calls)
    elif causes:
        message = _phrases(view, causes) + (f" · {_told(view, calls)}" if calls else "")
    else:
        causes, message = _not_met(view) or (failed, _phrases(view, failed))
    return _with_note(RankFailed(message, causes), view)


def disagreed(view):
    """Return the exception for ranks that all returned, but had not entered the same."""
    calls = recorder.disagreement(view.histories)
    message = f"{_told(view, calls)}: gloo reported no error, but the results are wrong"
    error = RankFailed(message, _odd_ones(calls))
    error.histories, error.frames = view.histories, view.frames
    return error


def odd_shapes(view):
    """Return a sentence about tensors of other shapes in one collective, or None."""
    calls = recorder.disagreement(view.histories, shapes=True)
    return calls and f"{_told(view, calls)}: gloo paired the elements in memory order"


def refused(why):
    """Return the exception for ranks that could not be started."""
    error = LaunchError(f"no rank was started: {why}")
    if hint := hints.about(why):
        error.add_note(hint)
    return error


def timed_out(view, timeout):
    """Return the exception for ranks that are still running `timeout` seconds after they started."""
    running = view.ranks("running")
    message = f"{_name(view, running)} {_were(running)} still running after {timeout:g} s"
    if calls := recorder.disagreement(view.histories):
        message += f" · {_told(view, calls)}"
    return _with_note(RanksTimedOut(message, running), view)


def not_started(view, missing, seconds, is_stopped):
    """Return the exception for ranks that had not joined the world after so many seconds."""
    stopped = " · a signal has stopped them, or the process they come from" if is_stopped else ""
    message = f"{_name(view, missing)} had not started after {seconds:.0f} s{stopped}"
    return _with_note(RanksTimedOut(message, missing), view)


def interrupted(view):
    """Return the exception that says where the ranks stood when the interrupt came."""
    return _with_note(Interrupted("all ranks were ended"), view)


def _name(view, ranks):
    """Name ranks in a sentence: `rank 1`, `ranks 0, 2`, `all 64 ranks`."""
    if len(ranks) == len(view.outcomes) > LISTED:
        return f"all {len(ranks)} ranks"
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _phrases(view, ranks):
    alike = {}
    for rank in ranks:
        alike.setdefault(_phrase(view.outcomes[rank], "were"), []).append(rank)
    phrases = [(those, _phrase(view.outcomes[those[0]], _were(those))) for those in alike.values()]
    return " · ".join(f"{_name(view, those)} {phrase}" for those, phrase in phrases)


def _phrase(outcome, were):
    if outcome.state == "raised":
        return f"raised {outcome.detail.kind}: {hints.tidy(outcome.detail.message)}".rstrip(": ")
    if outcome.state == "stopped":
        return outcome.detail.format(were=were)
    if outcome.detail >= 0:
        return f"exited with code {outcome.detail} before the function returned"
    how = SIGNALS.get(-outcome.detail, f"{{were}} killed by {_signal(-outcome.detail)}")
    return how.format(were=were)


def _signal(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        first = getattr(signal, "SIGRTMIN", number)
        return f"SIGRTMIN+{number - first}" if number > first else f"signal {number}"


def _is_echo(outcome):
    return outcome.state == "raised" and bool(outcome.detail.echo)


def _is_abort(outcome):
    return outcome.state == "died" and outcome.detail == -signal.SIGABRT


def _told(view, calls):
    return " · ".join(f"{_name(view, ranks)} entered {what}" for what, ranks in calls.items())


def _odd_ones(calls):
    """Return the ranks outside the largest party; all of them if no party is the largest."""
    parties = sorted(calls.values(), key=len)
    odd = parties if len(parties) == 1 or len(parties[-1]) == len(parties[-2]) else parties[:-1]
    return sorted(rank for party in odd for rank in party)


def _not_met(view):
    """Return the ranks that others waited for in vain, and a sentence that says so; None if nobody knows."""
    left = view.ranks("running", "raised", "died", "stopped", "gone")
    returned, gone = view.ranks("returned"), [rank for rank in view.ranks("running") if _has_left(view, rank)]
    waiting = [rank for rank in left if rank not in gone]
    if returned:
        return returned, f"{_name(view, returned)} returned while {_still_waiting(view, left)}"
    if gone:
        return gone, f"{_name(view, gone)} had left the group while {_still_waiting(view, waiting)}"
    gave_up = [r for r in view.ranks("raised") if view.outcomes[r].detail.echo.startswith("gave up")]
    calls = [view.histories[rank].calls[-1] for rank in gave_up if view.histories[rank].calls]
    missed = {r for rank in gave_up for r in _missed_at_barrier(view, rank)}
    running = view.ranks("running")
    late = [r for r in running if r in missed or any(_is_missed(call, r, view) for call in calls)]
    if late:
        where = _where(view, gave_up)
        return late, f"{_name(view, gave_up)} gave up waiting for {_name(view, late)}{where}"
    return None


def _has_left(view, rank):
    """True if a rank has destroyed the group of all ranks."""
    groups = view.histories[rank].groups
    return groups is not None and not any(len(ranks) == len(view.outcomes) for ranks in groups.values())


def _missed_at_barrier(view, rank):
    """The ranks that a monitored barrier says have not come; it numbers them within their group."""
    groups = [*(view.histories[rank].groups or {}).values()]
    found = MISSED.search(view.outcomes[rank].detail.message)
    return map(int, found[1].split(",")) if found and len(groups) == 1 else ()


def _is_missed(call, rank, view):
    """True if a rank is a member of the group of a collective, and has not entered it."""
    if not call.members or (call.members != "all" and rank not in call.members):
        return False
    same = [each for each in view.histories[rank].calls if each[:3] == call[:3]]
    return all(each.number < call.number for each in same)


def _still_waiting(view, ranks):
    return f"{_name(view, ranks)} {_were(ranks)} still waiting{_where(view, ranks)}"


def _where(view, ranks):
    waiting = sorted({stacks.waits_in(_stood(view, rank)) for rank in ranks} - {None})
    return f" in {' and '.join(waiting)}" if waiting else ""


def _were(ranks):
    return "was" if len(ranks) == 1 else "were"


def _stood(view, rank):
    outcome = view.outcomes[rank]
    return outcome.detail.frames if outcome.state == "raised" else view.frames[rank]


def _with_note(error, view):
    """Add one paragraph for each place, with all the ranks that stand there; and what each had entered."""
    if isinstance(error, LaunchError):
        error.histories = view.histories
        error.frames = [_stood(view, rank) for rank in range(len(view.outcomes))]
    places = {}
    for rank in range(len(view.outcomes)):
        places.setdefault(_where_one_stands(view, rank), []).append(rank)
    error.add_note("\n".join(f"{_name(view, ranks)}{place}" for place, ranks in places.items()))
    lines = {}
    for rank in view.ranks("running", "raised", "gone"):
        stood, outcome = _stood(view, rank), view.outcomes[rank]
        if written := stacks.outside(stood):
            raised = outcome.state == "raised" and not _is_echo(outcome)
            line = stacks.innermost(written) if raised else stacks.describe(stood)
            lines.setdefault(line, []).append(rank)
    error.places = [f"{_name(view, ranks)}: {line}" for line, ranks in lines.items()]
    return error


def _where_one_stands(view, rank):
    outcome = view.outcomes[rank]
    if outcome.state == "returned":
        return " returned"
    if outcome.state in ("died", "stopped", "gone") and not view.frames[rank]:
        return " reported nothing"
    # An echo in torch's words comes or not, as chance has it: do not say.
    if outcome.state == "raised" and (not _is_echo(outcome) or outcome.detail.echo.endswith("own words")):
        return "\n".join([" raised", *_traceback(outcome.detail)])
    stood = _stood(view, rank)
    if rank not in view.stopped:
        return f": {stacks.describe(stood)}"
    stopped = "stopped by a signal; kill -CONT resumes it"
    return f": {stacks.describe(stood)} ({stopped})" if stood else f" is {stopped}"


def _traceback(failure):
    """The reader's frames with their source, then the library frame that raised, then the exception."""
    mine = [frame for frame in failure.frames if not stacks.is_library(frame)]
    lines = []
    for number, frame in enumerate(mine):
        if number < FRAMES // 2 or number >= len(mine) - FRAMES // 2:
            lines += [f"  {stacks.place(frame)}", *(f"    {line}" for line in [stacks.source(frame)] if line)]
        elif number == FRAMES // 2:
            lines.append(f"  … {len(mine) - FRAMES} more")
    last = failure.frames[-1] if failure.frames else None
    if last and stacks.is_library(last) and not stacks.is_launcher(last):
        lines.append(f"  {stacks.place(last)}")
    said = f"{failure.kind}: {failure.message}".rstrip(": ")
    hint = hints.about("\n".join([said, *lines[-1:]]))
    return [*lines, f"  {said}", *(f"  {line}" for line in dict.fromkeys((*failure.more, hint)) if line)]
