"""How does an all-reduce reach the sum? Played round by round, and timed against the size of the message.

Above, a row for each rank and a column for each chunk: the number says how many contributions a chunk's
partial sum has (or the names say which), the bar from which ranks they came; Σ is the whole sum. Arrows are
the messages of the round. Below, the times of two algorithms on logarithmic axes. Only the two-level ring
tells the links inside nodes apart; the others are charged those between nodes in every round.
"""

import math

from ..collectives import (
    Cost,
    Levels,
    all_reduce_chunks,
    all_reduce_rounds,
    contributions,
    cost,
    hierarchical_all_reduce,
    meeting,
    round_cost,
)
from .all_reduce_grid import Grid, lanes
from .frame.controls import Choice, Integer, Scale, Steps, decades
from .frame.handles import handle, handles_over, playhead
from .frame.svg import WIDE, line, mark, marks_over, number, path, picture, text
from .frame.words import figures, many, scaled, seconds

TITLE = "All-reduce, round by round"

WORDS = (
    ("ring", "ring"),
    ("binomial_tree", "binomial tree"),
    ("recursive_doubling", "recursive doubling"),
    ("halving_doubling", "halving–doubling"),
    ("two_level", "two-level ring"),
)
NAMED = dict(WORDS)


def memory_words(nbytes):
    """A size as it is said."""
    return scaled(nbytes, "B")


def rate_words(rate):
    """A bandwidth as it is said."""
    return scaled(rate, "B/s")


CONTROLS = (
    Choice("algorithm", "algorithm", WORDS, "ring"),
    Choice("beside", "compared with", WORDS, "recursive_doubling"),
    Integer("world_size", "ranks p", 2, 16, 8),
    Scale("nbytes", "message n", decades(1000, 10**10, memory_words, (1, 4)), 4 * 10**7),
    Scale("latency", "latency α", decades(1, 1000, lambda µs: seconds(µs / 1e6)), 10),
    Scale("bandwidth", "bandwidth 1/β", decades(10**8, 10**12, rate_words), 5 * 10**10),
    Integer("ranks_per_node", "ranks a node g", 1, 8, 4),
    Scale("faster", "faster inside a node", tuple((k, f"{k} times") for k in (1, 2, 4, 8, 16, 32)), 8),
    Steps("step", "rounds played", 3),
)
SMALLEST, LARGEST = 3, 10  # decades of the time axis' sizes


def draw(width, *, algorithm, beside, world_size, nbytes, ranks_per_node, step, **network):
    """The chunks after `step` rounds of `algorithm`, and its time beside that of another."""
    p, g, both = world_size, ranks_per_node, (algorithm, beside)
    if "two_level" in both and (p % g or g == p):
        raise ValueError(f"ranks_per_node must divide the {p} ranks into two nodes or more, not be {g}")
    g = g if algorithm == "two_level" else 1
    rounds, chunks = all_reduce_rounds(algorithm, p, g), all_reduce_chunks(algorithm, p, g)
    step = min(step, len(rounds))
    held = contributions(algorithm, p, step, g)
    links = Links(network["latency"] / 1e6, 1 / network["bandwidth"], network["faster"], p, ranks_per_node)
    (size, time), so_far = links.clock(rounds[:step], chunks, nbytes)
    heading = [
        f"{NAMED[algorithm]}: before the first of {many(len(rounds), 'round')}",
        "each rank has its own values",
    ]
    if step:
        heading = [
            f"round {step} of {len(rounds)}: {rounds[step - 1].phase}",
            f"{memory_words(size)} a message · {seconds(time)} · so far {seconds(so_far)}",
        ]
    marks = [text(0, 16, heading[0], bold=True), text(0, 35, heading[1], size=12, ink="ink-soft")]
    grid = Grid(width, p, chunks, max(len(lanes(each.moves)) for each in rounds))
    marks += grid.cells(held) + (grid.arrows(rounds[step - 1].moves) if step else []) + grid.key()
    chart, bottom = times(width, grid.bottom + (34 if width == WIDE else 52), both, nbytes, links)
    words = said(both, nbytes, links)
    words += f" After {step} of {many(len(rounds), 'round')}"
    words += f" ({rounds[step - 1].phase}; {seconds(so_far)})" if step else ""
    sums = [len(chunk) for row in held for chunk in row]
    words += f", {sums.count(p)} of {len(sums)} sums on the ranks are complete"
    partial = max([each for each in sums if each < p] or [0])
    words += f"; the others have up to {partial} of {p} contributions." if partial else "."
    return {
        "svg": picture(width, bottom, marks, chart),
        "text": words,
        "marks": marks_over(
            width, bottom, touched(width, bottom, both, links) + grid.rounds(step, len(rounds))
        ),
        "handles": handles_over(
            width,
            bottom,
            grid.travelling(rounds, step),
            playhead(width, "step", "rounds", grid.left, width - 12, len(rounds) + 1, step, 48, heading[0]),
            size_hand(width, bottom, nbytes),
        ),
        "result": result(algorithm, nbytes, links),
        "insight": insight(both, nbytes, links),
        "steps": len(rounds) + 1,
        "idle": [] if "two_level" in both else ["ranks_per_node", "faster"],
    }


class Links:
    """The links between nodes (α, β), and those inside, in both `faster` times as fast."""

    def __init__(self, α, β, faster, world_size, ranks_per_node):
        self.α, self.β, self.faster = α, β, faster
        self.p, self.g = world_size, ranks_per_node

    def costs(self, algorithm, nbytes):
        """`Levels` of an all-reduce."""
        if algorithm == "two_level":
            return hierarchical_all_reduce(nbytes, self.g, self.p // self.g)
        return Levels(Cost(0, 0), cost("all_reduce", algorithm, nbytes, self.p))

    def seconds(self, levels):
        """Seconds that `Levels` take."""
        return levels.seconds(self.α / self.faster, self.β / self.faster, self.α, self.β)

    def clock(self, rounds, chunks, nbytes):
        """(bytes of the largest message, seconds) of the last of `rounds`, and the seconds of all."""
        levels = now = Levels(Cost(0, 0), Cost(0, 0))
        for each in rounds:
            one = round_cost(each, chunks, nbytes)
            now = Levels(one, Cost(0, 0)) if each.inside else Levels(Cost(0, 0), one)
            levels = Levels(levels.intra.then(now.intra), levels.inter.then(now.inter))
        return (now.intra.nbytes + now.inter.nbytes, self.seconds(now)), self.seconds(levels)

    def straight(self, algorithm):
        """(seconds of an empty message, seconds a byte)"""
        levels = self.costs(algorithm, 1)
        α, β, k = self.α, self.β, self.faster
        return levels.seconds(α / k, 0, α, 0), levels.seconds(0, β / k, 0, β)


def times(width, top, both, nbytes, links):
    """The chart of both times against the message's size, and where it ends."""
    left, right, high = 54, 8, 190
    both = both if both[0] != both[1] else both[:1]
    sizes = [10 ** (SMALLEST + i * (LARGEST - SMALLEST) / 42) for i in range(43)]
    curves = [[links.seconds(links.costs(name, size)) for size in sizes] for name in both]
    low = math.floor(math.log10(min(curve[0] for curve in curves)) + 1e-9)
    most = math.ceil(math.log10(max(curve[-1] for curve in curves)) - 1e-9)
    marks, y0 = [], top + 30

    def at_x(size):
        return left + (width - left - right) * (math.log10(size) - SMALLEST) / (LARGEST - SMALLEST)

    def at_y(time):
        return y0 + high * (most - math.log10(time)) / (most - low)

    looks = (("forward", 2.5, None), ("backward-input", 2, "6 4"))
    x = left
    for name, (stroke, thick, dash) in zip(both, looks):
        marks.append(line(x, top + 10, x + 26, top + 10, stroke, thick, dash))
        marks.append(text(x + 32, top + 14, NAMED[name], size=12))
        x += 48 + 6.8 * len(NAMED[name])
    for decade in range(low, most + 1):
        y = at_y(10**decade)
        marks.append(line(left, y, width - right, y, "grid"))
        marks.append(text(left - 8, y + 4, seconds(10**decade), "end", 11, "ink-soft"))
    for decade in range(SMALLEST, LARGEST + 1, 1 if width == WIDE else 2):
        place = "end" if decade == LARGEST else "middle"
        x = width if decade == LARGEST else at_x(10**decade)
        marks.append(text(x, y0 + high + 18, memory_words(10**decade), place, 11, "ink-soft"))
    marks += vertical(width, at_x(nbytes), y0, high, f"n = {memory_words(nbytes)}", y0 + 14, "ink", None)
    equal = meeting(links.straight(both[0]), links.straight(both[-1]))
    if equal and 10**SMALLEST <= equal <= 10**LARGEST:
        words = f"equal at {memory_words(equal)}"
        marks += vertical(
            width,
            at_x(equal),
            y0,
            high,
            words,
            y0 + high - 8,
            "comm",
            "3 3",
            "end" if equal < nbytes else "start",
        )
    for curve, (stroke, thick, dash) in zip(curves, looks):
        points = " ".join(f"{number(at_x(size))} {number(at_y(time))}" for size, time in zip(sizes, curve))
        marks.append(path(f"M{points}", stroke, thick, dash=dash))
    return marks, y0 + high + 28


def touched(width, bottom, both, links):
    """Places of the chart, one for each size of a message, and the two names."""
    left, right, y = 54, 8, bottom - 218
    scale = (width - left - right) / (LARGEST - SMALLEST)
    sizes = next(control.options for control in CONTROLS if control.name == "nbytes")
    edges = [math.log10(size) - SMALLEST for size, _ in sizes]
    marks = []
    for place, (size, words) in enumerate(sizes):
        first = (edges[place - 1] + edges[place]) / 2 if place else 0
        last = (edges[place] + edges[place + 1]) / 2 if place + 1 < len(sizes) else edges[place]
        times = [f"{NAMED[name]} {seconds(links.seconds(links.costs(name, size)))}" for name in both]
        words = f"{words}: {', '.join(times if both[0] != both[1] else times[:1])}"
        marks.append(mark(left + first * scale, y, (last - first) * scale, 190, f"nbytes={size}", words))
    if both[0] != both[1]:
        wide = 40 + 6.8 * len(NAMED[both[0]])
        words = f"{NAMED[both[1]]}: play its rounds"
        swapped = f"algorithm={both[1]},beside={both[0]},step=0"
        x, across = left + wide + 4, 40 + 6.8 * len(NAMED[both[1]])
        marks.append(mark(x, y - 30, min(across, width - x), 24, swapped, words))
    return marks


def size_hand(width, bottom, nbytes):
    """A grip on the line of the message's size."""
    left, right, y = 54, 8, bottom - 218
    scale = (width - left - right) / (LARGEST - SMALLEST)
    sizes = next(control.options for control in CONTROLS if control.name == "nbytes")
    places = [(size, left + (math.log10(size) - SMALLEST) * scale) for size, _ in sizes]
    words = memory_words(nbytes)
    return handle(width, "nbytes", "size of the message", "x", places, nbytes, y + 190, words, (y, y + 190))


def vertical(width, x, top, high, words, at, stroke, dash, side="start"):
    """A line at a size, with its words on `side`, or on the other where there is no room."""
    needed = 6.8 * len(words) + 8
    side = "start" if x < 54 + needed or (side == "start" and x < width - needed) else "end"
    return [
        line(x, top, x, top + high, stroke, 1.5, dash),
        text(x + (6 if side == "start" else -6), at, words, side, 12, stroke, True),
    ]


def result(algorithm, nbytes, links):
    """The time, and of what."""
    time = seconds(links.seconds(links.costs(algorithm, nbytes)))
    return time, f"to sum {memory_words(nbytes)} on {links.p} ranks: {NAMED[algorithm]}"


def insight(both, nbytes, links):
    """Which of the two is faster at this size, and why, in a sentence."""
    costs = [links.costs(name, nbytes) for name in both]
    times = [links.seconds(each) for each in costs]
    ratio = max(times) / min(times)
    if ratio < 1.005:
        return f"At {memory_words(nbytes)} both take the same time."
    fast, slow = (0, 1) if times[0] < times[1] else (1, 0)
    rounds = [each.intra.rounds + each.inter.rounds for each in costs]
    sent = [each.intra.nbytes + each.inter.nbytes for each in costs]
    fewer = rounds[fast] < rounds[slow], sent[fast] < sent[slow] * 0.999
    reasons = [words for words, holds in zip(("takes fewer rounds", "sends fewer bytes"), fewer) if holds]
    why = "it " + (" and ".join(reasons) or "keeps messages inside the nodes")
    words = f"At {memory_words(nbytes)}, {NAMED[both[fast]]} is {figures(ratio)} times as fast as "
    return words + f"{NAMED[both[slow]]}: {why}."


def said(both, nbytes, links):
    """The times in words."""
    sentences = []
    for name in both if both[0] != both[1] else both[:1]:
        levels = links.costs(name, nbytes)
        rounds, travelled = (
            levels.intra.rounds + levels.inter.rounds,
            levels.intra.nbytes + levels.inter.nbytes,
        )
        words = f"{NAMED[name]} takes {seconds(links.seconds(levels), 4)}: "
        words += f"{many(rounds, 'round')}, {memory_words(travelled)} in sequence"
        if name == "two_level":
            words += f", {memory_words(levels.inter.nbytes)} of it between nodes of {links.g}"
            words += f" and the rest inside, {links.faster} times faster"
        sentences.append(words)
    words = f"To sum {memory_words(nbytes)} on {links.p} ranks, {'; '.join(sentences)}."
    if both[0] != both[1]:
        equal = meeting(links.straight(both[0]), links.straight(both[1]))
        at = (
            f"Both take the same time at {memory_words(equal)}."
            if equal
            else "They never take the same time."
        )
        words += f" {at}"
        if "two_level" in both:
            words += " The other is charged for links between nodes in every round."
    return words
