"""Where does each chapter lie on the map of parallelism, and which lines lead there? The map as SVG.

Boxes stand in a grid: foundations below, above them what is cut, on top what combines the cuts. A line leads
from a chapter to one that needs it. It leaves upwards, runs in the channel above its row and in the gutter
left of the other's column, and every chapter keeps a lane of its own there. A page and a phone differ in the
number of columns.
"""

from __future__ import annotations

import html
import textwrap
from itertools import pairwise
from typing import NamedTuple

from .contents import Page, without_detours

GUTTER, HEIGHT, LABEL, CHANNEL, LANE = 13, 46, 44, 16, 2.5
GLYPHS = {  # x, y, width, height and the rank that holds it
    "batch": [(x, 6, 8, 8, x // 20) for x in (0, 10, 21, 31)],
    "states": [(x, y, w, 5, int(x > 0)) for y, w in ((0, 9), (7, 9), (14, 18)) for x in (0, w + 1)],
    "layer": [(9, 0, 9, 20, 0), (20, 0, 9, 20, 1)],
    "depth": [(4, y, 30, 4, y // 11) for y in (0, 5, 11, 16)],
    "sequence": [(x, 4, 3, 12, x // 20) for x in (0, 5, 10, 15, 21, 26, 31, 36)],
    "experts": [(x, y, 9, 9, y // 11 * 2 + x // 19) for y in (0, 11) for x in (8, 19)],
}


class Box(NamedTuple):
    """A chapter in the grid: its row from the top, its first and its last column."""

    page: Page
    row: int
    first: int
    last: int


class Line(NamedTuple):
    """From a chapter to one that needs it: the row of its channel, and its gutter; None: in none."""

    source: str
    target: str
    channel: int | None
    gutter: int | None


# ---- the grid ----


def grid(pages: list[Page], cuts: dict[str, str], columns: int) -> list[list]:
    """The rows from the top; in a row (page, first column, last column), or (a cut's name, its column)."""
    at = {name: [page for page in pages if page.at == name] for name in ("foundations", "combining", *cuts)}
    base, *others = at["foundations"]
    rows = [[(base, 0, columns - 1)], *in_rows(others, columns)]
    if columns < len(cuts):
        for name in cuts:
            rows += [[(name, 0)], *in_rows(at[name], columns)]
    else:
        rows.append([(name, i) for i, name in enumerate(cuts)])
        for level in range(max(len(at[name]) for name in cuts)):
            rows.append([(at[name][level], i, i) for i, name in enumerate(cuts) if level < len(at[name])])
    share = max(1, columns // len(at["combining"]))
    rows += in_rows(at["combining"], columns // share, share)
    return rows[::-1]


def in_rows(pages: list[Page], columns: int, share: int = 1) -> list[list]:
    """Pages side by side, `share` columns each, as many rows as it takes."""
    placed = [(page, i % columns * share, i % columns * share + share - 1) for i, page in enumerate(pages)]
    return [placed[start : start + columns] for start in range(0, len(placed), columns)]


def route(source: Box, target: Box) -> Line:
    """How the line from `source` to `target` runs."""
    ends = source.page.name, target.page.name
    above = target.row == source.row - 1 and source.first <= target.first and target.last <= source.last
    beside = target.row == source.row and target.first == source.last + 1
    if above or beside:
        return Line(*ends, None, None)
    gutter = target.first
    if target.last > target.first:  # a wide box is entered from below, where that is nearest
        gutter = min(
            range(target.first + 1, target.last + 1), key=lambda each: abs(each - source.first - 0.5)
        )
    return Line(*ends, source.row if source.first == source.last else None, gutter)


# ---- the drawing ----


def drawing(pages: list[Page], cuts: dict[str, str], columns: int, width: int, address) -> str:
    """The map as SVG, `columns` wide; `address(page)` is where a box leads."""
    plan = Plan(grid(pages, cuts, columns), columns, width)
    marks = [
        label(name, cuts[name], plan.lefts[column], plan.tops[i], plan.unit, columns < len(cuts))
        for i, row in enumerate(plan.rows)
        for name, column in (each for each in row if len(each) == 2)
    ]
    for name, box in plan.boxes.items():
        arrows = "".join(arrow(plan.points(line)) for line in plan.lines if line.target == name)
        marks.append(f'<g class="ar-stop">{arrows}{link(box.page, plan.frame(box), address(box.page))}</g>')
    size = f'viewBox="0 0 {width} {plan.height}" width="{width}" height="{plan.height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="group" aria-label="Map of the book" '
        f'data-columns="{columns}">{"".join(marks)}</svg>'
    )


class Plan:
    """Where the boxes of a grid stand in pixels, and along which points the lines between them run."""

    def __init__(self, rows: list[list], columns: int, width: int):
        self.rows = rows
        placed = [(i, each) for i, row in enumerate(rows) for each in row if len(each) == 3]
        self.boxes = {each[0].name: Box(each[0], i, *each[1:]) for i, each in placed}
        needs = without_detours({name: box.page.needs for name, box in self.boxes.items()})
        pairs = [(need, name) for name, found in needs.items() for need in found]
        self.lines = [route(self.boxes[need], self.boxes[name]) for need, name in pairs]
        gutters = [GUTTER + LANE * len(self.lanes("gutter", i)) for i in range(columns)]
        self.unit = (width - 2 - sum(gutters)) / columns
        self.lefts = [sum(gutters[: i + 1]) + i * self.unit for i in range(columns)]
        self.tops, y = [], 2
        for i, row in enumerate(rows):
            has_boxes = len(row[0]) == 3
            y += CHANNEL + LANE * len(self.lanes("channel", i)) if has_boxes and i else 0
            self.tops.append(y)
            y += HEIGHT if has_boxes else LABEL
        self.height = y + 2

    def lanes(self, kind: str, place: int) -> list[str]:
        """The chapters whose lines run in a channel or a gutter, a lane for each."""
        return list(dict.fromkeys(line.source for line in self.lines if getattr(line, kind) == place))

    def frame(self, box: Box) -> tuple[float, float, float]:
        """Left, top and width of a box; one that is wide begins at the very left."""
        x = self.lefts[box.first] if box.first or box.last == box.first else 2
        return x, self.tops[box.row], self.lefts[box.last] + self.unit - x

    def points(self, line: Line) -> list[tuple[float, float]]:
        """The corners of a line; those that enter a box from the left enter it one below the other."""
        source, target = self.boxes[line.source], self.boxes[line.target]
        (x, y, width), (left, top, wide) = self.frame(source), self.frame(target)
        if is_upright(line, source, target):
            return [(left + wide / 2, y), (left + wide / 2, top + HEIGHT)]
        entering = [
            each
            for each in self.lines
            if each.target == line.target and not is_upright(each, self.boxes[each.source], target)
        ]
        into = top + HEIGHT / 2 + (entering.index(line) - (len(entering) - 1) / 2) * 12
        if line.gutter is None:
            return [(x + width, into), (left, into)]
        across = self.lefts[line.gutter] - 12 - LANE * self.lanes("gutter", line.gutter).index(line.source)
        start = [(across, y)]
        if line.channel is not None:
            up = y - 8 - LANE * self.lanes("channel", line.channel).index(line.source)
            start = [(x + width / 2, y), (x + width / 2, up), (across, up)]
        if target.last > target.first:
            return [*start, (across, top + HEIGHT)]
        return [*start, (across, into), (left, into)]


def is_upright(line: Line, source: Box, target: Box) -> bool:
    """Whether a line leads straight from a box to the one above it."""
    return line.gutter is None and source.row > target.row


def arrow(points: list[tuple[float, float]]) -> str:
    """A line with rounded corners along `points`, all of its parts level or upright, and its head."""
    (x, y), path = points[0], f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (a, b), (c, d) in pairwise(points[1:]):
        radius = min(4, abs(a - x) + abs(b - y), abs(c - a) + abs(d - b))
        before = a - sign(a - x) * radius, b - sign(b - y) * radius
        after = a + sign(c - a) * radius, b + sign(d - b) * radius
        path += f"L{before[0]:.1f} {before[1]:.1f}Q{a:.1f} {b:.1f} {after[0]:.1f} {after[1]:.1f}"
        x, y = a, b
    a, b = points[-1]
    x, y = sign(a - x), sign(b - y)
    head = f"M{a:.1f} {b:.1f}l{-5 * x - 3 * y:.0f} {-5 * y - 3 * x:.0f}l{6 * y:.0f} {6 * x:.0f}z"
    return f'<path d="{path}L{a - 3 * x:.1f} {b - 3 * y:.1f}"/><path class="ar-head" d="{head}"/>'


def sign(x: float) -> int:
    """-1, 0 or 1; differences that rounding makes are none."""
    return 0 if abs(x) < 0.01 else 1 if x > 0 else -1


def link(page: Page, frame: tuple[float, float, float], address: str) -> str:
    """A box that leads to its chapter; a long title is broken at its spaces and hyphens."""
    x, y, width = frame
    words = textwrap.wrap(page.short, int(width / 7.2), break_long_words=False)
    first = y + HEIGHT / 2 + 4.5 - 7 * (len(words) - 1)
    spans = " ".join(
        f'<tspan x="{x + width / 2:.1f}" y="{first + 14 * i:.1f}">{html.escape(line)}</tspan>'
        for i, line in enumerate(words)
    ).replace("-</tspan> ", "-</tspan>")
    name = f'<a href="{html.escape(address)}" aria-label="{html.escape(page.short)}">'
    return (
        f"{name}<title>{html.escape(page.shows.replace('`', ''))}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}" rx="5"/><text>{spans}</text></a>'
    )


def label(name: str, words: str, x: float, y: float, unit: float, in_a_line: bool) -> str:
    """What is cut: its glyph, each part in the colour of the rank that holds it, above or beside its name."""
    left, top = (x, y + 11) if in_a_line else (x + unit / 2 - 19, y + 8)
    parts = "".join(
        f'<rect x="{left + a:.1f}" y="{top + b}" width="{w}" height="{h}" style="fill:var(--ar-rank-{r})"/>'
        for a, b, w, h, r in GLYPHS[name]
    )
    at = f'x="{x + 46:.1f}" y="{y + 25}"'
    if not in_a_line:
        at = f'x="{x + unit / 2:.1f}" y="{y + 42}" text-anchor="middle"'
    return f'<g class="ar-cut">{parts}<text {at}>{html.escape(words)}</text></g>'
