"""Where do the parts of a decode step cross? Each against ranks or sequences, both axes logarithmic.

The thick line is the next token, the thin ones are its parts. The dashed upright marks the present setting,
the square the knee; shaded numbers do not fit into memory, and rings are measured times.
"""

import math

from .frame.svg import WIDE, circle, line, mark, number, path, rectangle, text
from .frame.words import seconds

LOOKS = (  # a part, its colour, and the dashes of its line
    ("weights", "forward", None),
    ("cache", "backward-weight", "8 3"),
    ("arithmetic", "backward-input", "2 3"),
    ("latency", "comm", "7 3 2 3"),
    ("bandwidth", "rank-5", "11 3 2 3 2 3"),
)
LEFT, RIGHT, HIGH, DECADES = 52, 18, 190, 4


def chart(width, top, against, values, points, full, now, knee, rates):
    """The parts and their sum at `points`, pairs (one of `values`, `NextToken`); a list of marks.

    full: values that do not fit; now, knee: such pairs, the knee perhaps None; rates: pairs (value, measured
    tokens a second).
    """
    highest = math.ceil(math.log10(max(token.seconds for _, token in points)))
    step = (width - LEFT - RIGHT) / (len(values) - 1)

    def across(value):
        return LEFT + step * math.log2(value)

    def down(time):
        return top + HIGH * (highest - math.log10(time)) / DECADES

    marks = []
    for value in full:
        low, high = max(LEFT, across(value) - step / 2), min(width - RIGHT, across(value) + step / 2)
        marks.append(rectangle(low, top, high - low, HIGH, "idle"))
    marks += axes(width, top, against, values, across, highest)
    for part, stroke, dash in LOOKS:
        curve = [(across(value), down(getattr(each, part))) for value, each in points if getattr(each, part)]
        marks.append(path(clipped(curve, top + HIGH), stroke, 2, dash=dash))
    curve = [(across(value), down(each.seconds)) for value, each in points]
    marks.append(path(clipped(curve, top + HIGH), "ink", 3))
    for value, rate in rates:
        marks.append(circle(across(value), down(1 / rate), 4, "paper", "alarm", f"measured: {rate} tokens/s"))
    x, y = across(now[0]), down(now[1].seconds)
    marks.append(line(x, top, x, top + HIGH, "accent", 1.5, "4 3"))
    marks.append(circle(x, y, 5, "accent", "paper"))
    if knee:
        x, y = across(knee[0]), down(knee[1].seconds)
        marks.append(rectangle(x - 5, y - 5, 10, 10, None, "ink"))
        words = f"fastest: {knee[0]}" if against == "ranks" else f"knee: {knee[0]:,}"
        marks.append(line(x, top, x, y - 5, "ink"))
        aside = x + 6 if now[0] <= knee[0] else x - 6  # of the setting's line
        aside = x - 6 if x + 7.5 * len(words) > width else x + 6 if x - 7.5 * len(words) < LEFT else aside
        marks.append(text(aside, top + 14, words, "start" if aside > x else "end", 12, bold=True))
    return marks + notes(top + HIGH + 36, full, rates)


def numbers(width, top, against, values, points, full, names):
    """Places: the numbers of ranks or sequences that the chart knows; a click takes one.

    names: what a part of the step is called.
    """
    step, known = (width - LEFT - RIGHT) / (len(values) - 1), dict(points)
    marks = []
    for turn, value in enumerate(values):
        if value in known:
            token, many = known[value], f"{against[:-1]}{'s' if value > 1 else ''}"
            words = f"{value:,} {many}: {seconds(token.seconds)}, bound by {names[token.bound]}"
            words += ", does not fit" if value in full else ""
            x = LEFT + (turn - 0.5) * step
            low, high = max(LEFT, x), min(width - RIGHT, x + step)
            marks.append(mark(low, top, high - low, HIGH + 20, f"{against}={value}", words))
    return marks


def axes(width, top, against, values, across, highest):
    """The grid and its words."""
    marks = []
    for decade in range(DECADES + 1):
        y = top + HIGH * decade / DECADES
        marks.append(line(LEFT, y, width - RIGHT, y, "grid"))
        marks.append(text(LEFT - 6, y + 4, seconds(10.0 ** (highest - decade)), "end", 11, "ink-soft"))
    for turn, value in enumerate(values):
        x = across(value)
        marks.append(line(x, top, x, top + HIGH, "grid"))
        if width == WIDE or len(values) < 9 or turn % 2 == 0:
            marks.append(text(x, top + HIGH + 16, f"{value:,}", "middle", 11, "ink-soft"))
    below = "tensor-parallel ranks" if against == "ranks" else "sequences"
    marks.append(text(width - RIGHT, top + HIGH + 36, below, "end", 11, "ink-soft"))
    return marks


def clipped(curve, floor):
    """The path through the points of a curve, as far as it is not below `floor`."""
    said, end = "", None
    for turn in range(len(curve) - 1):
        (x, y), (to_x, to_y) = curve[turn], curve[turn + 1]
        if y > floor and to_y > floor:
            continue
        if y > floor:
            x, y = x + (floor - y) / (to_y - y) * (to_x - x), floor
        elif to_y > floor:
            to_x, to_y = x + (floor - y) / (to_y - y) * (to_x - x), floor
        said += "" if end == (x, y) else f"M{number(x)} {number(y)}"
        said += f"L{number(to_x)} {number(to_y)}"
        end = to_x, to_y
    return said


def notes(y, full, rates):
    """What the shade and the rings are, where there are any."""
    marks, x = [], 0
    if full:
        marks += [
            rectangle(x, y - 10, 14, 12, "idle"),
            text(x + 19, y, "does not fit", size=11, ink="ink-soft"),
        ]
        x += 96
    if rates:
        marks += [
            circle(x + 7, y - 4, 4, "paper", "alarm"),
            text(x + 16, y, "measured", size=11, ink="ink-soft"),
        ]
    return marks
