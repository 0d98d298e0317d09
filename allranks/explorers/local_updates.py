"""How fast a link do ranks need that meet every H steps? The share of time that computes, against bandwidth.

The thick line is simulated for the settings, the thin one for data parallelism. Numbered dots are what
Streaming DiLoCo prints for its five ways (Douillard et al. 2025, Table 4). Below, the bandwidth that some
shares need: simulated, and printed where the table has this setting. `allranks.local_updates` computes it.
"""

import math

from ..local_updates import (
    GRID,
    MODELS,
    NAMES,
    PARAMETERS,
    PRINTED,
    TARGETS,
    WAYS,
    bits_per_step,
    printed_place,
    table_place,
    table_utilization,
)
from .frame.controls import Choice, Integer, Scale, decades
from .frame.svg import WIDE, circle, line, mark, marks_over, number, path, picture, rectangle, text
from .frame.words import counted, figures, fixed, gigabits, percent, scaled

TITLE = "Local updates: utilisation against bandwidth"

SIZES = tuple((size, str(size)) for size in (1, 2, 3, 4, 6, 12)) + ((0, "all layers"),)
EVERY = tuple((steps, str(steps)) for steps in (1, 2, 5, 10, 20, 30, 50, 100, 200))
CONTROLS = (
    Choice("model", "parameters", tuple((each, counted(each)) for each in PARAMETERS), 1e9),
    Scale("every", "steps between meetings H", EVERY, 100),
    Scale("size", "layers a fragment", SIZES, 3),
    Integer("delay", "steps of overlap τ", 0, 5, 0),
    Scale("bits", "bits a parameter", tuple((each, str(each)) for each in (4, 8, 16, 32)), 16),
    Scale("link", "link", decades(100, 10**6, gigabits), 5000),  # in Mbit/s
)
DOTS = ("comm", "backward-weight", "forward", "backward-input", "rank-5")
LEFT, RIGHT, TOP, HIGH = 46, 10, 24, 230


def draw(width, *, model, every, size, delay, bits, link):
    """Utilization against bandwidth, with the printed dots, and the bandwidth that five shares need."""
    way = {"every": every, "size": size or None, "delay": delay, "bits": bits}
    share = table_utilization(model, link / 1000, **way)
    parallel = table_utilization(model, link / 1000)
    marks = axes(width)
    for options, stroke, thick, dash in (({}, "ink-soft", 1.5, "5 3"), (way, "accent", 3, None)):
        points = [(place(width, each), level(table_utilization(model, each, **options))) for each in GRID]
        drawn = " ".join(f"{number(x)} {number(y)}" for x, y in points)
        marks.append(path(f"M{drawn}", stroke, thick, dash=dash))
    marks += dots(width, model)
    x, y = place(width, link / 1000), level(share)
    marks.append(line(x, TOP, x, TOP + HIGH, "ink", 1, "3 3"))
    marks.append(circle(x, y, 5, "accent", "paper"))
    key, top = legend(width, TOP + HIGH + 56)
    named = [name for name in NAMES if same(WAYS[name], way)]
    rows, words, top = table(width, top + 14, model, way, named)
    layers, step = MODELS[model]
    cut = f"fragments of {size} layer{'s' if size > 1 else ''}" if size else "all layers at once"
    rate = bits_per_step(model, bits, every) / step
    said = (
        f"{counted(model)} parameters in {layers} layers, {figures(step)} s a step; H = {every}, {cut}, "
        f"{bits} bits, overlap {delay}. At {gigabits(link)} the ranks compute for {percent(share)} of the "
        f"time; with data parallelism, for {percent(parallel)}. "
        f"On average they send {scaled(rate, 'bit/s')}. {words}"
    )
    touch = links(width, model, way) + printed(width, model)
    return {
        "svg": picture(width, top, marks, key, rows),
        "text": said,
        "marks": marks_over(width, top, touch),
        "result": (percent(share), f"of the time is spent computing, with links of {gigabits(link)}"),
        "insight": insight(share, parallel, every, delay),
        "idle": [],
    }


def insight(share, parallel, every, delay):
    """What rare meetings and overlap save at this link, in a sentence."""
    if every == 1 and not delay:
        return "Ranks that meet after every step wait for the link after every step."
    if share > 0.99:
        return f"The link is no longer a limit; data parallelism computes {percent(parallel)} of the time."
    words = f"Data parallelism computes {percent(parallel)} of the time"
    if not delay:
        return f"{words}. The rest of the wait could overlap with the next steps: τ sets how many."
    return f"{words}. A message that fits beneath {delay} step{'s' if delay > 1 else ''} costs nothing."


def links(width, model, way):
    """Places: the links; a click takes one."""
    options = next(control.options for control in CONTROLS if control.name == "link")
    edges, marks = [place(width, megabits / 1000) for megabits, _ in options], []
    for turn, (megabits, words) in enumerate(options):
        first = (edges[turn - 1] + edges[turn]) / 2 if turn else edges[0]
        last = (edges[turn] + edges[turn + 1]) / 2 if turn + 1 < len(edges) else edges[-1]
        share = percent(table_utilization(model, megabits / 1000, **way))
        words += f": {share} of the time is spent computing"
        marks.append(mark(first, TOP, last - first, HIGH + 20, f"link={megabits}", words))
    return marks


def printed(width, model):
    """Places: what the table prints; a click takes that way of training."""
    marks = []
    for turn, name in enumerate(NAMES):
        way = {"every": 1, "size": None, "delay": 0, "bits": 16}
        way.update(WAYS[name])
        sets = ",".join([f"{key}={way[key] or 0}" for key in ("every", "size", "delay", "bits")])
        for gbits, target in zip(PRINTED[model, name], TARGETS):
            x, y = place(width, gbits), level(target)
            words = f"printed, {name}: {figures(gbits)} Gbit/s for {percent(target, 0)}"
            marks.append(mark(max(0, x - 8), y - 8, 16, 16, sets, words, f"w{turn}"))
    return marks


def same(given, way):
    """Whether a way of the table is the setting `way`."""
    full = {"every": 1, "size": None, "delay": 0, "bits": 16}
    full.update(given)
    return full == way


def place(width, gbits):
    """Where a bandwidth is on the axis."""
    return LEFT + (width - LEFT - RIGHT) * (math.log10(gbits) + 1) / 4


def level(share):
    """Where a share of time is on the axis."""
    return TOP + HIGH * (1 - share)


def axes(width):
    """The grid of the chart and its words."""
    marks = [text(0, 13, "time spent computing", bold=True)]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = level(share)
        marks.append(line(LEFT, y, width - RIGHT, y, "grid"))
        marks.append(text(LEFT - 8, y + 4, f"{fixed(100 * share, 0)} %", "end", 11, "ink-soft"))
    for decade in range(-1, 4):
        x = place(width, 10**decade)
        marks.append(line(x, TOP, x, TOP + HIGH, "grid"))
        side = "end" if decade == 3 else "middle"
        marks.append(text(min(x, width), TOP + HIGH + 16, figures(10**decade), side, 11, "ink-soft"))
    marks.append(text(width, TOP + HIGH + 32, "link (Gbit/s)", "end", 11, "ink-soft"))
    return marks


def dots(width, model):
    """What the table prints for a model: a numbered dot for each way and target."""
    marks = []
    for turn, name in enumerate(NAMES):
        for gbits, target in zip(PRINTED[model, name], TARGETS):
            x, y = place(width, gbits), level(target)
            title = f"{name}: {figures(gbits)} Gbit/s for {percent(target, 0)}"
            marks.append(circle(x, y, 6.5, DOTS[turn], "paper", title))
            marks.append(text(x, y + 3.5, turn + 1, "middle", 10, "paper", True))
    return marks


def legend(width, top):
    """What the lines and the numbers are, and where the words end."""
    marks, x, y = [], 0, top
    entries = [("accent", None, "these settings"), ("ink-soft", None, "data parallel, simulated")]
    entries += [(DOTS[turn], turn + 1, f"printed: {name}") for turn, name in enumerate(NAMES)]
    for fill, order, words in entries:
        needed = 24 + 6.6 * len(words) + 14
        if x and x + needed > width:
            x, y = 0, y + 21
        if order is None:
            marks.append(line(x, y - 4, x + 18, y - 4, fill, 3, None if fill == "accent" else "5 3"))
        else:
            marks.append(circle(x + 9, y - 4, 6.5, fill))
            marks.append(text(x + 9, y - 0.5, order, "middle", 10, "paper", True))
        marks.append(text(x + 24, y, words, size=12, ink="ink-soft"))
        x += needed
    return marks, y + 10


def table(width, top, model, way, named):
    """(marks, words, end): the Gbit/s that each target needs, simulated and printed; `named` is the way."""
    left, row = (110, 24) if width == WIDE else (74, 24)
    cell = (width - left) / len(TARGETS)
    places = [table_place(model, target, **way) for target in TARGETS]
    printed = PRINTED[model, named[0]] if named else ()
    marks = [text(0, top + 12, "Gbit/s needed to compute for", size=12, bold=True)]
    top += 20
    for column, (target, at) in enumerate(zip(TARGETS, places)):
        x = left + (column + 0.5) * cell
        marks.append(text(x, top + 14, percent(target, 0), "middle", 12, "ink-soft"))
        marks.append(text(x, top + 14 + row, gbits_words(at), "middle", 12))
        if named:
            off = at != printed_place(printed[column])
            if off:
                marks.append(rectangle(x - cell / 2 + 2, top + 2 * row - 2, cell - 4, row - 2, None, "alarm"))
            ink = "alarm" if off else "ink"
            words = fixed(printed[column], 1)
            marks.append(text(x, top + 14 + 2 * row, words, "middle", 12, ink, off))
    marks.append(text(0, top + 14 + row, "simulated", size=12))
    marks.append(text(0, top + 14 + 2 * row, "printed", size=12))
    if not named:
        words = "Table 4 does not have this setting."
        marks.append(text(left, top + 14 + 2 * row, words, size=12, ink="ink-soft"))
        return marks, words, top + 3 * row + 2
    off = [each for each, at in zip(printed, places) if at != printed_place(each)]
    words = f"Table 4 has this setting: {len(TARGETS) - len(off)} of its 5 numbers equal the simulated ones"
    if off:
        words += ", the framed ones are one point of its grid (21 %) off"
    return marks, words + ".", top + 3 * row + 2


def gbits_words(at):
    """A bandwidth of the grid, by its index, in Gbit/s."""
    return "under 0.1" if at is None else figures(GRID[at])
