"""Where do published runs lie beside a model? A share against nodes or seconds on a logarithmic axis.

The thick line is the model, the dashed upright the present setting. A disc is what a run reported, hollow if
that is a projection, with an arrow if it is a lower bound; a line leads to the square that the model gives.
"""

import math

from .frame.svg import WIDE, circle, line, mark, number, path, rectangle, text
from .frame.words import percent

LEFT, RIGHT, HIGH = 44, 22, 210
TICKS = {
    "nodes": tuple((2**power, f"{2**power:,}") for power in range(0, 15, 2)),
    "interval": ((60, "1 min"), (600, "10 min"), (3600, "1 h"), (21_600, "6 h"), (86_400, "1 day")),
}


def chart(width, top, against, ends, curve, now, runs):
    """The marks: `curve` and `now` are pairs (value, share); runs as `goodput.compared` gives them."""
    low, high = ends
    scale = (width - LEFT - RIGHT) / math.log(high / low)

    def across(value):
        return LEFT + scale * math.log(value / low)

    def down(share):
        return top + HIGH * (1 - share)

    marks = axes(width, top, against, across)
    points = "L".join(f"{number(across(value))} {number(down(share))}" for value, share in curve)
    marks.append(path(f"M{points}", "ink", 3))
    x, y = across(now[0]), down(now[1])
    marks.append(line(x, top, x, top + HIGH, "accent", 1.5, "4 3"))
    marks.append(circle(x, y, 5, "accent", "paper"))
    for turn, (name, run, model, fit) in enumerate(runs):
        value = run.machines if against == "nodes" else run.interval
        if value is not None:
            marks += dot(across(value), down, turn + 1, name, run, model, fit)
    return marks


def columns(width, top, against, ends, shares):
    """Places: the values of the axis that can be set; a click takes one. shares: (value, words, share)."""
    low, high = ends
    scale = (width - LEFT - RIGHT) / math.log(high / low)
    edges = [LEFT + scale * math.log(value / low) for value, _, _ in shares]
    marks = []
    for turn, (value, words, share) in enumerate(shares):
        first = (edges[turn - 1] + edges[turn]) / 2 if turn else edges[0]
        last = (edges[turn] + edges[turn + 1]) / 2 if turn + 1 < len(edges) else edges[-1]
        sets, unit = f"{against}={value}", f" node{'s' if value > 1 else ''}"
        words = f"{words}{unit}: {percent(share)} of the time is spent training"
        if against == "interval":
            sets, words = (
                f"save=own,interval={value}",
                f"saved every {shares[turn][1]}: {percent(share)} of the time is spent training",
            )
        marks.append(mark(first, top, last - first, HIGH + 20, sets, words))
    return marks


def dot(x, down, order, name, run, model, fit):
    """What a run reported, its number, and a line to what the model gives."""
    y, ink, marks = down(run.share), "ink" if fit else "alarm", []
    if model is not None:
        marks.append(line(x, y, x, down(model), ink, 1.5))
        marks.append(rectangle(x - 4, down(model) - 4, 8, 8, "paper", ink, f"{name}: model"))
    if run.kind == "at least":
        low, tip = number(y - 8), number(y - 13)
        marks.append(path(f"M{number(x - 4)} {low}L{number(x)} {tip}L{number(x + 4)} {low}", ink))
    marks.append(circle(x, y, 4.5, "paper" if run.kind == "projected" else ink, ink, f"{name}: reported"))
    marks.append(text(x, y + 19, order, "middle", 12, ink, True))
    return marks


def axes(width, top, against, across):
    """The grid and its words."""
    marks = []
    for fifth in range(6):
        y = top + HIGH * fifth / 5
        marks.append(line(LEFT, y, width - RIGHT, y, "grid"))
        marks.append(text(LEFT - 6, y + 4, f"{100 - 20 * fifth} %", "end", 11, "ink-soft"))
    for turn, (value, words) in enumerate(TICKS[against]):
        x = across(value)
        marks.append(line(x, top, x, top + HIGH, "grid"))
        if width == WIDE or against != "nodes" or turn % 2 == 1:
            marks.append(text(x, top + HIGH + 16, words, "middle", 11, "ink-soft"))
    below = "nodes of 8 GPUs" if against == "nodes" else "between two checkpoints"
    marks.append(text(width - RIGHT, top + HIGH + 34, below, "end", 11, "ink-soft"))
    return marks
