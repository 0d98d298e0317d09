"""What did each rank do until now? A row a rank, in rounds: sending, receiving, waiting; and its calls.

The upper half of a bar is sending, the lower half receiving; pale is waiting, and names the rank waited for.
"""

from ..ranks.patterns import gaps, other, rounds
from .frame.svg import WIDE, block, line, mark, number, path, rectangle, text
from .frame.words import figures
from .space_time import arrow

HIGH = 18  # pixels of a bar


def several(n, what):
    """`1 round`, `3 rounds`."""
    return f"{figures(n)} {what}{'s' * (n != 1)}"


class Now:
    """A run and a moment of it."""

    def __init__(self, played, moment):
        self.played, self.world, self.moment = played, played.world, moment
        self.gaps, self.p = gaps(played), played.world.size
        self.still = rounds(played)  # from here on nothing moves

    def waited(self, rank):
        """Rounds that a rank has waited so far."""
        spans = [(gap.start, self.until(gap)) for gap in self.gaps if gap.rank == rank]
        return sum([stop - start for start, stop in spans if stop > start])

    def until(self, gap):
        """The end of a gap, or the moment if that comes first."""
        return self.moment if gap.stop is None else min(gap.stop, self.moment)

    def for_ever(self, rank):
        """Whether a rank waits for ever, and nothing moves any more."""
        return self.world.state[rank] == "waits" and self.moment > self.still

    def ends(self, rank, call):
        """When a call of a rank is over; None: never."""
        began = self.played.began[rank]
        if call + 1 < len(began):
            return began[call + 1]
        return self.world.clock[rank] if self.world.state[rank] == "returned" else None


class Rows:
    """Where ranks and rounds lie in a picture, and what is drawn there of a `Now`."""

    def __init__(self, width, now, end):
        self.wide, self.width, self.now, self.end = width == WIDE, width, now, end
        self.left, self.right = (64, 90) if self.wide else (32, 42)
        self.row, self.top, self.rail = (32, 76, 52) if self.wide else (32, 92, 60)
        self.unit = (width - self.left - self.right) / end
        self.bottom = self.top + now.p * self.row

    def x(self, time):
        return self.left + time * self.unit

    def y(self, rank):
        return self.top + (rank + 0.5) * self.row

    def key(self):
        """What the colours mean."""
        marks, x, y = [], 0, 33
        for fill, words in (("backward-input", "sends"), ("forward", "receives"), ("idle", "waits for …")):
            marks.append(block(x, y - 11, 16, 12, fill))
            marks.append(text(x + 21, y, words, size=12, ink="ink-soft"))
            x += 112 if self.wide else 92
        if self.wide:
            marks.append(text(x, y, "pale arrows: still to come", size=12, ink="ink-soft"))
        return marks

    def lines(self, chosen, late):
        """A line a rank, its name, and how long it has waited so far."""
        now, marks = self.now, []
        marks.append(text(self.width, self.top - 6, "waited", "end", 12, "ink-soft"))
        for rank in range(now.p):
            y, own = self.y(rank), rank == chosen
            if own:
                marks.append(rectangle(0, y - self.row / 2 + 1, self.width, self.row - 2, "tint"))
            marks.append(line(self.x(late if own else 0), y, self.x(self.end), y, "grid-strong"))
            words = f"rank {rank}" if self.wide else rank
            marks.append(text(self.left - 10, y + 4, words, "end", 12, "ink" if own else "ink-soft", own))
            words, ink = f"{figures(now.waited(rank))}", "ink" if own else "ink-soft"
            if now.for_ever(rank):
                words, ink = "for ever" if self.wide else "∞", "alarm"
            marks.append(text(self.width, y + 4, words, "end", 12, ink, own or ink == "alarm"))
        return marks

    def waits(self):
        """The waiting until now; where it has no end, a red line."""
        now, marks = self.now, []
        for gap in now.gaps:
            stop = now.until(gap)
            if stop <= gap.start:
                continue
            x, y, wide = self.x(gap.start), self.y(gap.rank), (stop - gap.start) * self.unit
            marks.append(block(x, y - HIGH / 2, wide, HIGH, "idle"))
            if wide > 46:
                marks.append(text(x + 5, y + 4, f"for {gap.peer}", size=12))
            elif wide > 18:
                marks.append(text(x + 5, y + 4, gap.peer, size=12))
            if gap.stop is None and stop > now.still:
                y += HIGH / 2
                marks.append(line(self.x(max(now.still, gap.start)), y, self.x(stop), y, "alarm", 2))
        return marks

    def messages(self):
        """The bars of the messages until now, and the arrows of all, those to come in pale."""
        now, bars, pale, arrows = self.now, [], [], []
        for event in now.world.events:
            source, target = event.ranks
            ends = (self.x(event.start), self.y(source), self.x(event.end), self.y(target))
            if event.end > now.moment:
                pale.append(f"M{number(ends[0])} {number(ends[1])}L{number(ends[2])} {number(ends[3])}")
                continue
            bars.append(block(ends[0], ends[1] - HIGH / 2, self.unit, HIGH / 2, "backward-input"))
            bars.append(block(ends[0], ends[3], self.unit, HIGH / 2, "forward"))
            arrows.append(arrow(*ends, "comm"))
        return [path("".join(pale), "grid-strong", 1.5, dash="4 3")] * bool(pale) + bars + arrows

    def stuck(self):
        """Who waits for whom when nothing moves any more: an arrow from each to the one it waits for."""
        now, marks, lane = self.now, [], 0
        if now.moment <= now.still:
            return marks
        x0 = self.x(now.still) + (62 if self.wide else 50)
        for gap in now.gaps:
            if gap.stop is None:
                near = abs(gap.rank - gap.peer) == 1
                lane += not near
                x = x0 + (0 if near else lane * (18 if self.wide else 13))
                marks.append(arrow(x, self.y(gap.rank), x, self.y(gap.peer), "alarm"))
        return marks

    def at_now(self):
        """The line of the moment."""
        x = self.x(self.now.moment)
        return line(x, self.top - 14, x, self.bottom, "ink", 1, "3 3")

    # ---- places ----

    def ranks(self, chosen):
        """A place for the name of each rank: a click looks at its calls."""
        marks = []
        for rank in range(self.now.p):
            waited = (
                "waits for ever"
                if self.now.for_ever(rank)
                else f"has waited {several(self.now.waited(rank), 'round')}"
            )
            sets = "" if rank == chosen else f"rank={rank}"
            y = self.y(rank) - self.row / 2
            marks.append(mark(0, y, self.left - 8, self.row, sets, f"rank {rank} {waited}; show its calls"))
        return marks

    def halves(self):
        """A place for each side of each message: a click goes to the moment of its arrival."""
        marks = []
        for turn, event in enumerate(self.now.world.events):
            end = int(event.end)
            for rank, up in ((event.ranks[0], HIGH / 2), (event.ranks[1], 0)):
                way = "sends to" if up else "receives from"
                words = f"rank {rank} {way} rank {other(event, rank)} in round {end}"
                at = (self.x(event.start), self.y(rank) - up, self.unit, HIGH / 2)
                marks.append(mark(*at, f"moment={end}", words, f"m{turn}"))
        return marks

    def gaps(self):
        """A place for the waiting: a click looks at the rank that is waited for."""
        marks = []
        for gap in self.now.gaps:
            stop = self.now.until(gap)
            if stop > gap.start:
                long = several(stop - gap.start, "round") if gap.stop is not None else "without end"
                words = f"rank {gap.rank} waits for rank {gap.peer}, {long}"
                at = (self.x(gap.start), self.y(gap.rank) - HIGH / 2, (stop - gap.start) * self.unit, HIGH)
                marks.append(mark(*at, f"rank={gap.peer}", words))
        return marks


def called(call, short=False):
    """A call in words: `send → 1`, `recv ← 0`, `wait`."""
    kind, peer = call
    if peer is None:
        return kind
    way = f"{'→' if 'send' in kind else '←'} {peer}"
    return way if short else f"{kind} {way}"


def calls(width, top, now, rank):
    """(marks, places, end): the calls of one rank as boxes, over now, or to come."""
    program, room = now.played.programs[rank], 92 if width == WIDE else 80
    marks, over = [text(0, top, f"the calls of rank {rank}", bold=True)], []
    if not program:
        marks.append(text(0, top + 26, "none", size=12, ink="ink-soft"))
    each = min(room, width / max(len(program), 1))
    for place, call in enumerate(program):
        x, box = place * each, (place * each, top + 10, each - 4, 26)
        began = now.played.began[rank][place] if place < len(now.played.began[rank]) else None
        end = now.ends(rank, place) if began is not None else None
        done = end is not None and end <= now.moment
        current = began is not None and began <= now.moment and not done
        never = current and end is None and now.moment > now.still
        edge = "alarm" if never else "ink" if current else "grid-strong"
        marks.append(rectangle(*box, "idle" if current else "tint" if done else "paper", edge))
        ink = "alarm" if never else "ink-soft" if not (done or current) else "ink"
        words = called(call, each < 66)
        marks.append(text(x + each / 2 - 2, top + 28, words, "middle", 12, ink, current))
        state = "done" if done else "waits for ever" if never else "now" if current else "to come"
        sets = f"moment={int(end)}" if end is not None else ""
        over.append(mark(*box, sets, f"call {place + 1} of rank {rank}: {called(call)}, {state}"))
    return marks, over, top + 44
