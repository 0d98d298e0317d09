"""What does a rank hold, when is it busy, and how much is it? Drawn as SVG, in the palette of the explorers.

A drawing is 480 pixels wide: a phone shows it at three quarters of its size, and its words stay legible.
"""

import itertools
from zlib import crc32

from allranks.explorers.frame.svg import bars as strokes
from allranks.explorers.frame.svg import block, hatches, legend, line, number, path, picture, rectangle, text
from allranks.explorers.frame.svg import colour as shade

WIDTH = 480
PARTS = ("forward", "backward-input", "backward-weight", "comm")
KINDS = {  # of a stretch of time: its colour
    "forward": "forward",
    "backward": "backward-input",
    "input gradient": "backward-input",
    "weight gradient": "backward-weight",
    "step": "backward-weight",
    "communicate": "comm",
    "idle": "idle",
}
PASSES = {"F": "forward", "BW": "backward", "B": "input gradient", "W": "weight gradient"}
STRIPED = ("backward-input", "backward-weight", "comm")
HERE = "of-this-drawing"  # stands for its name until all is drawn


class Drawing:
    """A figure as SVG: a notebook shows it, and the page sets it into its text."""

    def __init__(self, svg):
        self.svg = svg

    def __repr__(self):
        return "<a drawing>"

    def _repr_svg_(self):
        return self.svg


def _drawing(height, *marks):
    """Name the patterns by what is drawn, and not by its numbers, whose last bits can differ between runs."""
    svg = picture(WIDTH, height, hatches(HERE), *marks)
    return Drawing(svg.replace(HERE, f"drawing-{crc32(svg.encode())}"))


# ---- amounts ----


def bars(rows, unit, limit=None, digits=0):
    """Draw a bar for each of `rows`, a dict from its label to {part: amount}, and behind it the sum.

    limit: (words, amount) of a line across all bars. digits: of the sums, behind the point.
    """
    names = list(dict.fromkeys(part for row in rows.values() for part in row))
    colours = dict(zip(names, itertools.cycle(PARTS), strict=False))
    left = 14 + 7.2 * max(map(len, rows))
    most = max([sum(row.values()) for row in rows.values()] + [limit[1] if limit else 0])
    scale = (WIDTH - left - 64) / most
    top, marks = 26 if limit else 8, []
    for place, (label, row) in enumerate(rows.items()):
        x, y = left, top + 28 * place
        marks.append(text(left - 8, y + 19, label, "end"))
        for part, amount in row.items():
            striped = HERE if colours[part] in STRIPED else None
            marks.append(block(x, y + 4, max(amount * scale, 0.5 * (amount > 0)), 20, colours[part], striped))
            x += amount * scale
        marks.append(text(x + 6, y + 19, f"{sum(row.values()):,.{digits}f}", ink="ink-soft"))
    bottom = top + 28 * len(rows)
    if limit:
        x = left + limit[1] * scale
        marks += [line(x, top, x, bottom, "ink", 1.5, "4 3"), text(x, 16, limit[0], "middle", 12)]
    marks += [
        line(left, top, left, bottom, "ink-soft"),
        text(min(left, WIDTH - 6.6 * len(unit)), bottom + 16, unit, size=12, ink="ink-soft"),
    ]
    return _drawing(*_with_legend(bottom + 28, names, colours), marks)


def _with_legend(y, names, colours):
    """The height of a drawing with a legend at `y` (none for a single name), and the legend."""
    if len(names) < 2:
        return y, []
    entries = [(colours[each], each, colours[each] in STRIPED) for each in names]
    drawn, high = legend(10, y + 12, WIDTH - 20, entries, HERE)
    return y + high + 6, drawn


# ---- time ----


def streams(panels, unit, names=None):
    """Draw what is busy when; `panels` maps a heading to {lane: [(start, end, kind, words)]}.

    kind: of `KINDS`, which the legend calls by its entry in `names`, if it has one. All panels have one axis
    of time, in `unit`; words that do not fit are left out.
    """
    return _over_time(panels, unit, _stretches, names or {})


def _over_time(panels, unit, draw, names):
    """Lanes over one axis of time; `draw` makes the marks of a lane."""
    stretches = [one for lanes in panels.values() for lane in lanes.values() for one in lane]
    end = max(stop for _, stop, *_ in stretches)
    left = 14 + 7.2 * max(len(label) for lanes in panels.values() for label in lanes)
    scale, y, marks = (WIDTH - left - 16) / end, 6, []
    for heading, lanes in panels.items():
        marks.append(text(10, y + 14, heading, bold=True))
        y += 22
        for label, lane in lanes.items():
            marks += [
                text(left - 8, y + 17, label, "end", 12),
                line(left, y + 24, left + end * scale, y + 24, "grid"),
            ]
            marks += draw(lane, left, scale, y)
            y += 27
        y += 4
    step = next(one * 10**ten for ten in range(-3, 9) for one in (1, 2, 5) if end / (one * 10**ten) <= 8)
    for tick in range(int(end / step + 1e-9) + 1):
        x = left + tick * step * scale
        marks += [line(x, y, x, y + 4), text(x, y + 17, f"{tick * step:g}", "middle", 11, "ink-soft")]
    marks += [
        line(left, y, left + end * scale, y),
        text(left + end * scale, y + 32, unit, "end", 12, "ink-soft"),
    ]
    kinds, colours = [kind for kind in KINDS if any(kind == one[2] for one in stretches)], {}
    for colour in dict.fromkeys(KINDS[kind] for kind in kinds):
        colours[", ".join(names.get(kind, kind) for kind in kinds if KINDS[kind] == colour)] = colour
    return _drawing(*_with_legend(y + 38, list(colours), colours), marks)


def passes(panels, unit):
    """Draw when each rank runs what; `panels` maps a heading to the slots of a simulated schedule.

    A box carries the number of its micro-batch. A line below it marks a later stage of the same rank.
    """
    drawn = {}
    for heading, slots in panels.items():
        ranks = 1 + max(slot.rank for slot in slots)
        drawn[heading] = lanes = {f"rank {rank}": [] for rank in range(ranks)}
        for rank, (kind, microbatch, stage), start, end in slots:
            lanes[f"rank {rank}"].append((start, end, PASSES[kind], microbatch, stage >= ranks))
    return _over_time(drawn, unit, _boxes, {})


def _stretches(lane, left, scale, y):
    marks = []
    for start, stop, kind, words in lane:
        x, wide, colour = left + start * scale, (stop - start) * scale, KINDS[kind]
        marks.append(block(x, y + 3, max(wide - 1, 0.6), 20, colour, HERE if colour in STRIPED else None))
        if 0 < 7 * len(str(words)) < wide:
            ink = "ink" if colour == "idle" else "paper"
            marks.append(text(x + wide / 2, y + 17, words, "middle", 11, ink, colour != "idle"))
    return marks


def _boxes(lane, left, scale, y):
    """Many boxes in few marks: a path for each colour, one for the lines below, and one group of numbers."""
    paths, below, numbers = {}, [], []
    for start, stop, kind, microbatch, later in lane:
        x, wide = left + start * scale, (stop - start) * scale
        long = f"h{round(10 * wide) - 10}"
        paths.setdefault(KINDS[kind], []).append(f"M{round(10 * x)} {10 * y + 130}{long}")
        if later:
            below.append(f"M{round(10 * x)} {10 * y + 240}{long}")
        if 8 * len(str(microbatch)) < wide:
            numbers.append(f'<text x="{number(x + wide / 2)}" y="{y + 17}">{microbatch}</text>')
    marks = [strokes(bar, 20, colour, HERE if colour in STRIPED else None) for colour, bar in paths.items()]
    look = f'font-size="11" font-weight="600" text-anchor="middle" style="fill:{shade("paper")}"'
    return [*marks, *([strokes(below, 3, "ink")] if below else []), f"<g {look}>{''.join(numbers)}</g>"]


# ---- who holds what ----


def holders(rows, of="rank"):
    """Draw what each rank holds of a tensor; a row of `rows` is (label, note, a matrix for each rank).

    A number of a matrix says how much of that part of the tensor the rank has: 1 is all of it, 0 nothing, and
    what lies between is a partial sum, drawn hollow. In place of matrices stands the name of a collective.
    """
    count = max(len(held) for _, _, held in rows if not isinstance(held, str))
    left = 20 + max(7.4 * max(len(label) for label, *_ in rows), 6.2 * max(len(note) for _, note, _ in rows))
    gap = (WIDTH - left) / count
    marks, y = (
        [text(left + (rank + 0.5) * gap, 16, f"{of} {rank}", "middle", 12) for rank in range(count)],
        24,
    )
    for label, note, held in rows:
        if isinstance(held, str):
            marks += [block(left + 4, y + 3, WIDTH - left - 14, 20, "comm", HERE)]
            marks += [text(left + count * gap / 2, y + 17, held, "middle", 12, "paper", True)]
            marks += [text(left - 8, y + 17, label or note, "end", 12, "ink-soft")]
            y += 30
            continue
        high, wide = len(held[0]), len(held[0][0])
        size = min(56 / high, (gap - 12) / wide)
        marks.append(text(left - 8, y + 6 + size * high / 2 - 2 * bool(note), label, "end"))
        marks.append(text(left - 8, y + 20 + size * high / 2, note, "end", 11, "ink-soft"))
        for rank, matrix in enumerate(held):
            at = left + (rank + 0.5) * gap - wide * size / 2
            marks += _matrix(at, y + 3, size, matrix, f"rank-{rank % 8}")
        y += max(size * high, 34) + 12
    return _drawing(y, marks)


def _matrix(x, y, size, matrix, fill):
    """A tensor as an outline, what is held of it filled, and partial sums hollow."""
    high, wide = len(matrix), len(matrix[0])
    marks, row = [rectangle(x, y, size * wide, size * high, "tint", "grid-strong")], 0
    for same, equal in itertools.groupby(matrix):
        tall, column = len(list(equal)), 0
        for share, run in itertools.groupby(same):
            across = len(list(run))
            if share:
                at = (x + column * size, y + row * size, across * size, tall * size)
                marks += [block(*at, fill)] if share == 1 else _hollow(at, fill)
            column += across
        row += tall
    return marks


def _hollow(at, fill):
    """A rectangle that is striped and not filled."""
    x, y, wide, high = at
    steps = range(6, int(wide + high), 8)
    ends = [(min(s, wide), max(0, s - wide), max(0, s - high), min(s, high)) for s in steps]
    d = "".join(f"M{number(x + a)} {number(y + b)}L{number(x + c)} {number(y + e)}" for a, b, c, e in ends)
    return [rectangle(x, y, wide, high, "paper", fill), path(d, fill, 1)]
