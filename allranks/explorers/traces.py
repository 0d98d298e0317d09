"""Which rank do the others wait for? Recorded traces of four ranks on one clock, to zoom into.

For each rank the phases that the program names, then computation, then collectives: waiting until the last
rank has entered, and sending from then on. The traces are measured, once; `profiles.ABOUT` says where.
"""

from .. import profiles
from .frame.controls import Choice, Integer, Scale, Steps
from .frame.svg import WIDE, bars, legend, line, mark, marks_over, picture, rectangle, text
from .frame.words import figures, percent, seconds

TITLE = "Recorded traces of four ranks"

WORDS = ("healthy", "one slow rank", "slow data loader", "no overlap", "small messages", "host sync")
ZOOMS = ((1, "× 1"), (2, "× 2"), (4, "× 4"), (8, "× 8"), (16, "× 16"), (32, "× 32"))
CONTROLS = (
    Choice("trace", "trace", tuple(zip(profiles.EXAMPLES, WORDS)), "slow rank"),
    Scale("zoom", "zoom", ZOOMS, 1),
    Integer("position", "position (%)", 0, 100, 0),
    Steps("moment", "moment (0 shows none)", 0),
)
MOMENTS = 48
LEFT, RIGHT, TOP, ROW, LANE = 54, 12, 40, 56, 14


def draw(width, *, trace, zoom, position, moment):
    """The chosen trace in a window of 1 / `zoom` of its time, `position` per cent of the way to its end."""
    recorded, moment = profiles.example(trace), min(moment, MOMENTS)
    whole = profiles.shares(recorded)[0].whole
    long = whole / zoom
    start = (whole - long) * position / 100
    at = start + long * moment / MOMENTS if moment else None
    marks, _ = legend(
        LEFT,
        18,
        width - LEFT,
        (("forward", "computes", False), ("backward-input", "waits", False), ("comm", "sends", False)),
        "",
    )
    window = start, long, (width - LEFT - RIGHT) / long
    meetings = met(recorded)
    for place, each in enumerate(recorded):
        marks += lanes(TOP + place * ROW, each, meetings[place], window, width)
    bottom = TOP + len(recorded) * ROW
    marks += axis(width, bottom, window)
    if at is not None:
        x = LEFT + (at - start) * window[2]
        marks.append(line(x, TOP - 4, x, bottom, "ink", 1.5))
    shares = profiles.shares(recorded)
    most = max(shares, key=lambda share: share.waiting)
    waits = f"of rank {most.rank}'s time is spent waiting for others, the most of all ranks"
    return {
        "svg": picture(width, bottom + 30, marks),
        "marks": marks_over(width, bottom + 30, moments(recorded, meetings, window, width, moment)),
        "result": (percent(most.waiting / most.whole, 0), waits),
        "insight": insight(recorded, shares),
        "text": said(recorded, meetings, WORDS[profiles.EXAMPLES.index(trace)], start, long, at),
        "steps": MOMENTS + 1,
        "idle": ["position"] if zoom == 1 else [],
    }


def insight(recorded, shares):
    """Who is waited for, or what else takes the time, in a sentence."""
    late = profiles.straggler(recorded)
    if late is not None:
        return f"The others wait for rank {late}: it is still busy when they have entered the collective."
    exposed = sum(share.exposed - share.waiting for share in shares) / sum(share.whole for share in shares)
    waiting = sum(share.waiting for share in shares) / sum(share.whole for share in shares)
    words = f"No rank stands out: on average {percent(waiting, 0)} of the time is waiting for the last rank"
    return f"{words}, and {percent(exposed, 0)} is sending while nothing computes."


def moments(recorded, meetings, window, width, chosen):
    """Places: each rank at some moments on the clock; a click puts the line there."""
    start, long, _ = window
    many = 12 if width == WIDE else 8
    wide, marks = (width - LEFT - RIGHT) / many, []
    for place, (one, mine) in enumerate(zip(recorded, meetings)):
        for turn in range(many):
            moment = MOMENTS * (2 * turn + 1) // (2 * many)
            at = start + long * moment / MOMENTS
            words = f"rank {one.rank} after {figures(1000 * at)} ms: {state(one, mine, at)}"
            at = LEFT + turn * wide, TOP + place * ROW, wide, ROW - 8
            sets = f"moment={0 if moment == chosen else moment}"
            marks.append(mark(*at, sets, words, f"m{turn}"))
    return marks


def met(recorded):
    """For each rank its collectives: (start, when the last rank entered it, end, that rank's number)."""
    found = [[] for _ in recorded]
    for match in profiles.matched(recorded):
        starts = [start for start, _ in match.spans]
        last = max(starts)
        rank = recorded[match.ranks[starts.index(last)]].rank
        for place, (start, end) in zip(match.ranks, match.spans):
            found[place].append((start, min(max(last, start), end), end, rank))
    return [sorted(mine) for mine in found]


def lanes(y, recorded, meetings, window, width):
    """What one rank did, between its name and the next rank's."""
    start, long, scale = window
    marks = [text(LEFT - 8, y + 32, f"rank {recorded.rank}", "end", 12, "ink-soft")]
    for turn, (name, first, last) in enumerate(recorded.phases):
        first, last = max(first, start), min(last, start + long)
        if first < last:
            x, wide = LEFT + (first - start) * scale, (last - first) * scale
            marks.append(rectangle(x, y, wide, ROW - 8, "tint" if turn % 2 else "idle"))
            if wide > 6.5 * len(name) + 6:
                marks.append(text(x + 3, y + 11, name, size=11, ink="ink-soft"))
    computing, waiting, sending, thin, until = [], [], [], [[], []], -1.0
    computing = pieces(recorded.computing, y + 21, window)
    for first, entered, last, _ in meetings:
        if first >= until:
            waiting += pieces([(first, entered)], y + 38, window)
            sending += pieces([(entered, last)], y + 38, window)
        else:  # a second one at the same time
            thin[0] += pieces([(first, entered)], y + 38, window)
            thin[1] += pieces([(entered, last)], y + 38, window)
        until = max(until, last)
    for drawn, fill, high in (
        (computing, "forward", LANE),
        (waiting, "backward-input", LANE),
        (sending, "comm", LANE),
    ):
        if drawn:
            marks.append(bars(drawn, high, fill))
    for drawn, fill in zip(thin, ("backward-input", "comm")):
        if drawn:
            marks += [bars(drawn, 7, "paper"), bars(drawn, 5, fill)]
    return marks


def pieces(intervals, y, window):
    """The bars of `intervals` within the window, in tenths of a pixel."""
    start, long, scale = window
    drawn = []
    for first, last in intervals:
        first, last = max(first, start), min(last, start + long)
        if first < last:
            x, wide = int(10 * (LEFT + (first - start) * scale)), int(10 * (last - first) * scale)
            drawn.append(f"M{x} {10 * y}h{max(wide, 5)}")
    return drawn


def axis(width, y, window):
    """The time axis of the window, with round times."""
    start, long, scale = window
    step, factor = 1e-4, 0
    while long / step > (8 if width == WIDE else 4):
        step, factor = step * (2.5 if factor == 1 else 2), (factor + 1) % 3
    marks = [line(LEFT, y, width - RIGHT, y)]
    tick = int(start / step)
    while tick * step <= start + long * 1.0001:
        x = LEFT + (tick * step - start) * scale
        if x >= LEFT - 0.5:
            marks.append(line(x, y, x, y + 4))
            side = "end" if x > width - 30 else "middle"
            marks.append(text(min(x, width), y + 17, seconds(tick * step), side, 11, "ink-soft"))
        tick += 1
    return marks


def said(recorded, meetings, words, start, long, at):
    """The numbers in words."""
    shares = profiles.shares(recorded)
    late = profiles.straggler(recorded)
    parts = "; ".join(
        f"rank {share.rank} computes {percent(share.computing / share.whole, 0)}, "
        f"waits {percent(share.waiting / share.whole, 0)}, "
        f"sends {percent((share.exposed - share.waiting) / share.whole, 0)}"
        for share in shares
    )
    verdict = "No rank stands out." if late is None else f"The others wait for rank {late}."
    calls = len(recorded[0].collectives)
    whole = f"Two steps of the trace “{words}”: {seconds(shares[0].whole)}, {calls} collectives a rank."
    shown = f" Shown: {seconds(start)} to {seconds(start + long)}." if long < shares[0].whole else ""
    label = profiles.ABOUT.split(":")[0]
    sentence = f"{whole} Shares of the time, not counting hidden communication: {parts}. {verdict}{shown}"
    if at is not None:
        doing = "; ".join(f"rank {one.rank} {state(one, mine, at)}" for one, mine in zip(recorded, meetings))
        sentence += f" After {figures(1000 * at)} ms: {doing}."
    return f"{sentence} Recorded: {label[0].lower()}{label[1:]}."


def state(recorded, meetings, at):
    """What one rank does at a moment, in words."""
    doing = []
    if any(first <= at < last for first, last in recorded.computing):
        doing.append("computes")
    now = [one for one in meetings if one[0] <= at < one[2]]
    waited = [rank for _, entered, _, rank in now if at < entered]
    if waited:
        doing.append(f"waits for rank {waited[0]}")
    elif now:
        doing.append("sends")
    phase = [one.name for one in recorded.phases if one.start <= at < one.end]
    inside = f" in {phase[0]}" if phase else ""
    return (" and ".join(doing) or "is idle") + inside
