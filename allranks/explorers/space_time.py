"""What did the ranks of a world say to each other, and when? A line a rank, an arrow a message, and words.

Time runs to the right, and on a phone downwards. A world is one of `allranks.ranks.world`, after its run.
"""

from .frame.svg import WIDE, escape, line, number, path, picture, text
from .frame.words import scaled, seconds

MOST = 120  # messages that are drawn; a picture of more would be black
TALL = 16  # pixels of a message on a phone


class Axes:
    """Where a time on a rank lies in the picture."""

    def __init__(self, world, width, end):
        self.wide, self.width, self.end, self.size = width == WIDE, width, end or 1.0, world.size
        stuck = "waits" in world.state
        if self.wide:
            self.left, self.top, self.gap = 62, 22, 44
            self.long = width - self.left - (150 if stuck else 20)
            self.height = self.top + self.size * self.gap + 20
        else:
            self.left, self.top, self.gap = 46, 30, (width - 54) / self.size
            self.long = max(150, TALL * min(len(world.events), 60))
            self.height = self.top + self.long + (46 if stuck else 20)

    def at(self, time, rank):
        """(x, y) of a time on the line of a rank."""
        along, across = self.long * time / self.end, (rank + 0.5) * self.gap
        return (self.left + along, self.top + across) if self.wide else (self.left + across, self.top + along)

    def stretch(self, rank, start, stop, colour, width, dash=None):
        """A piece of a rank's line."""
        return line(*self.at(start, rank), *self.at(stop, rank), colour, width, dash)


def in_order(world):
    """The events of a world, the earliest to end first."""
    events = world.events  # MicroPython's `sorted` does not keep the order of equals
    return [events[i] for i in sorted(range(len(events)), key=lambda i: (events[i].end, i))]


def draw(world, width=WIDE, shown=None):
    """The picture of the first `shown` events of a world, or of all; the last of some is set off."""
    events = in_order(world)
    end = max([event.end for event in events] + world.clock + [world.α])
    axes, marks = Axes(world, width, end), []
    for rank in range(world.size):
        x, y = axes.at(0, rank)
        words = f"rank {rank}" if axes.wide else str(rank)
        here = (x - 10, y + 4, words, "end") if axes.wide else (x, y - 10, words, "middle")
        marks += [axes.stretch(rank, 0, end, "grid-strong", 1), text(*here, 12, "ink-soft")]
    for rank, start, stop, _ in world.waited:
        marks.append(axes.stretch(rank, start, stop, "idle", 9))
    some = events[: MOST if shown is None else shown]
    for event in some[-MOST:]:
        set_off = shown is not None and event is some[-1]
        marks.append(drawn(event, axes, "backward-input" if set_off else "comm"))
    marks += [stuck(world, axes, rank) for rank in range(world.size) if world.state[rank] == "waits"]
    if axes.wide:
        marks.append(text(axes.left, axes.height - 4, "0", "middle", 11, "ink-soft"))
        marks.append(text(axes.left + axes.long, axes.height - 4, seconds(end), "end", 11, "ink-soft"))
    else:
        marks.append(text(2, axes.top + 4, "0", size=11, ink="ink-soft"))
        marks.append(text(2, axes.top + axes.long + 4, seconds(end), size=11, ink="ink-soft"))
    return picture(width, axes.height, marks)


def drawn(event, axes, colour):
    """The marks of one event."""
    title = f"<title>{escape(about(event))}</title>"
    if event.kind == "message":
        source, target = event.ranks
        return f"<g>{title}{arrow(*axes.at(event.start, source), *axes.at(event.end, target), colour)}</g>"
    start, colour = max(event.start), "forward" if colour == "comm" else colour
    marks = [axes.stretch(rank, start, event.end, colour, 9) for rank in event.ranks]
    first, last = axes.at(start, event.ranks[0]), axes.at(start, event.ranks[-1])
    marks.append(line(*first, *last, colour, 2))
    if axes.wide:
        marks.append(text(first[0], first[1] - 9, event.kind, "start", 11, "ink-soft"))
    return f"<g>{title}{''.join(marks)}</g>"


def arrow(x0, y0, x1, y1, colour):
    """An arrow of two paths."""
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 or 1
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    shaft = f"M{number(x0)} {number(y0)}L{number(x1 - 6 * dx)} {number(y1 - 6 * dy)}"
    tip = f"M{number(x1)} {number(y1)}L{number(x1 - 8 * dx + 3.5 * dy)} {number(y1 - 8 * dy - 3.5 * dx)}"
    tip += f"L{number(x1 - 8 * dx - 3.5 * dy)} {number(y1 - 8 * dy + 3.5 * dx)}z"
    return path(shaft, colour) + path(tip, None, fill=colour)


def stuck(world, axes, rank):
    """The end of the line of a rank that waits for ever."""
    wait, now = world.waits[rank], world.clock[rank]
    x, y = axes.at(axes.end, rank)
    mark = axes.stretch(rank, now, axes.end, "alarm", 3, "2 4")
    where = f"line {wait.place[-1][0]}" if wait.place else "waits"
    if axes.wide:
        peer = getattr(wait.thing, "peer", None)
        words = wait.call if peer is None else f"{wait.call} {'→' if wait.thing.sends else '←'} {peer}"
        return mark + text(x + 6, y + 4, f"{words}, {where}", size=11, ink="alarm")
    return mark + text(
        x, y + 16, where if axes.gap > 40 else where.replace("line ", ""), "middle", 11, "alarm"
    )


def about(event):
    """One event in a sentence without its end: who, what, how much, when."""
    start = event.start if event.kind == "message" else max(event.start)
    when = f"from {seconds(start)} to {seconds(event.end)}"
    if event.kind == "message":
        way = f"rank {event.ranks[0]} → rank {event.ranks[1]}"
        return f"{way}: {event.words}; {scaled(event.nbytes, 'B')}, {when}"
    return f"{event.words} on ranks {', '.join([str(rank) for rank in event.ranks])}, {when}"


def said(world):
    """The whole picture in words."""
    counts = {}
    for event in world.events:
        counts[event.kind] = counts.get(event.kind, 0) + 1
    parts = [several(counts[kind], kind) for kind in sorted(counts)]
    words = ", ".join(parts) if parts else "No messages"
    words += f" on {several(world.size, 'rank')} in {seconds(max(world.clock))}"
    sent = max(sent_by_rank(world))
    return words + (f"; a rank sends at most {scaled(sent, 'B')} in messages." if sent else ".")


def several(n, what):
    """`1 message`, `6 messages`."""
    if what not in ("message", "rank"):
        return f"{n} × {what}"
    return f"{n} {what}" + "s" * (n != 1)


def sent_by_rank(world):
    """Bytes that each rank has sent in messages."""
    sent = [0] * world.size
    for event in world.events:
        if event.kind == "message":
            sent[event.ranks[0]] += event.nbytes
    return sent


def by_rank(world):
    """A line a rank: what it sent, how long it waited, and what it has in the end."""
    waited, lines = [0.0] * world.size, []
    for rank, start, stop, _ in world.waited:
        waited[rank] += stop - start
    for rank, sent in enumerate(sent_by_rank(world)):
        state, result = world.state[rank], world.results[rank]
        if state == "returned":
            end = f"returned {short(result)}"
        elif state == "raised":
            end = f"raised {result.words}"
        else:
            end = f"waits in {world.waits[rank].words}" if state == "waits" else "was not finished"
        lines.append(f"rank {rank}: sent {scaled(sent, 'B')}, waited {seconds(waited[rank])}, {end}")
    return lines


def short(value, most=80):
    """What a value looks like, in one line."""
    words = " ".join(repr(value).split())
    return words if len(words) <= most else words[: most - 1] + "…"
