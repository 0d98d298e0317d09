"""Where do weights go? A plane of two weights: its contours, a path of steps, an arrow for each gradient.

An arrow is the step that a gradient alone would take. What leaves the plane ends at its edge.
"""

import math

from .frame.svg import block, circle, line, number, path, rectangle, text
from .frame.words import figures
from .space_time import arrow


class Panel:
    """A piece of a picture with an x axis from `low` to `high` of its own, and the same upwards."""

    def __init__(self, left, top, wide, high, across, up):
        self.left, self.top, self.wide, self.high = left, top, wide, high
        self.across, self.up = across, up

    def x(self, value):
        low, high = self.across
        return self.left + self.wide * (value - low) / (high - low)

    def y(self, value):
        low, high = self.up
        return self.top + self.high * (high - value) / (high - low)

    def frame(self):
        """The box around it."""
        return rectangle(self.left, self.top, self.wide, self.high, "tint", "grid")

    def inside(self, x, y):
        """Whether a place of the picture lies in it."""
        return self.left <= x <= self.left + self.wide + 1e-6 and self.top <= y <= self.top + self.high + 1e-6

    def reach(self, x0, y0, x1, y1):
        """How much of the way from a place inside to another lies inside: at most 1."""
        part = 1.0
        for start, end, low, size in ((x0, x1, self.left, self.wide), (y0, y1, self.top, self.high)):
            if end > low + size:
                part = min(part, (low + size - start) / (end - start))
            elif end < low:
                part = min(part, (low - start) / (end - start))
        return max(part, 0.0)

    def way(self, x0, y0, x1, y1):
        """Where a line from a place inside ends, at the latest at the edge."""
        part = self.reach(x0, y0, x1, y1)
        return x0 + part * (x1 - x0), y0 + part * (y1 - y0)


class Plane(Panel):
    """The plane of the weights: slope b to the right, level a upwards."""

    def at(self, weights):
        """The place of some weights (a, b)."""
        return self.x(weights[1]), self.y(weights[0])

    def contours(self, best, spread):
        """Lines of equal loss around the best weights; `spread`: the mean of x², the curvature along b."""
        marks, made = [], []
        for radius in (0.25, 0.5, 1.0, 1.5, 2.0, 2.5):
            pen = "M"
            for turn in range(73):
                angle = turn * math.pi / 36
                up, across = radius * math.sin(angle), radius * math.cos(angle) / math.sqrt(spread)
                x, y = self.at((best[0] + up, best[1] + across))
                if self.inside(x, y):
                    made.append(f"{pen}{number(x)} {number(y)}")
                    pen = "L"
                else:
                    pen = "M"
        x, y = self.at(best)
        marks.append(path("".join(made), "grid-strong", 1))
        marks.append(path(f"M{number(x - 5)} {number(y)}h10M{number(x)} {number(y - 5)}v10", "ink", 2))
        return marks

    def axes(self):
        """The frame, and numbers along both axes."""
        bottom, marks = self.top + self.high, [self.frame()]
        for value in (-1, 0, 1):
            if self.across[0] < value < self.across[1]:
                words = figures_of(value)
                marks.append(text(self.x(value), bottom + 16, words, "middle", 12, "ink-soft"))
            if self.up[0] < value < self.up[1]:
                marks.append(
                    text(self.left + 5, self.y(value) + 4, figures_of(value), size=12, ink="ink-soft")
                )
        marks.append(text(self.left + self.wide, bottom + 16, "b, slope", "end", 12, "ink-soft"))
        marks.append(text(self.left + 5, self.top + 15, "a, level", size=12, ink="ink-soft"))
        return marks

    def path(self, steps, ink, width, dash=None, dots=0):
        """The path of some weights as far as it is inside; `dots`: the radius of a dot at each step."""
        places = [self.at(weights) for weights in steps]
        within = [self.inside(x, y) for x, y in places]
        made, marks = [], []
        for place, end in enumerate(places):
            if dots and within[place]:
                marks.append(circle(end[0], end[1], dots, ink))
            start = places[place - 1]
            if place and (within[place - 1] or within[place]):
                start, end = (start, end) if within[place - 1] else (end, start)
                end = self.way(start[0], start[1], end[0], end[1])
                made.append(f"M{number(start[0])} {number(start[1])}L{number(end[0])} {number(end[1])}")
        return [path("".join(made), ink, width, dash=dash)] + marks

    def step(self, weights, target, ink, thick=False):
        """An arrow from some weights to others."""
        (x0, y0), (x1, y1) = self.at(weights), self.at(target)
        if not self.inside(x0, y0):
            return []
        x1, y1 = self.way(x0, y0, x1, y1)
        if not thick:
            return [arrow(x0, y0, x1, y1, ink)]
        long = math.sqrt((x1 - x0) ** 2 + (y1 - y0) ** 2)
        if long < 8:
            return []
        dx, dy = 14 * (x1 - x0) / long, 14 * (y1 - y0) / long
        tip = f"M{number(x1)} {number(y1)}L{number(x1 - dx + dy / 2)} {number(y1 - dy - dx / 2)}"
        tip += f"L{number(x1 - dx - dy / 2)} {number(y1 - dy + dx / 2)}z"
        return [line(x0, y0, x1 - dx, y1 - dy, ink, 4), path(tip, "paper", 1, fill=ink)]


class Data(Panel):
    """The points of all ranks, and the lines through them."""

    def points(self, owned):
        """Each rank's points in its colour."""
        return [
            circle(self.x(x), self.y(y), 4, f"rank-{rank}", "paper")
            for rank, points in enumerate(owned)
            for x, y in points
        ]

    def line(self, weights, ink, width, dash=None):
        """The line of some weights, as far as it is inside."""
        a, b = weights
        spans = []
        for i in range(49):
            x = self.across[0] + (self.across[1] - self.across[0]) * i / 48
            y = self.y(a + b * x)
            if self.top <= y <= self.top + self.high:
                spans.append((self.x(x), y))
        if len(spans) < 2:
            return []
        return [line(spans[0][0], spans[0][1], spans[-1][0], spans[-1][1], ink, width, dash)]

    def border(self, owned, rank):
        """Where the part of a rank ends: half way to the next point."""
        if rank == len(owned) - 1:
            return self.left + self.wide
        return self.x((owned[rank][-1][0] + owned[rank + 1][0][0]) / 2)

    def bands(self, owned):
        """(x, width) of the part of each rank."""
        ends = [self.border(owned, rank) for rank in range(len(owned))]
        return [(start, end - start) for start, end in zip([self.left] + ends, ends)]

    def owners(self, owned):
        """A band below the points: which rank has which."""
        marks, y = [], self.top + self.high + 4
        for rank, (x, wide) in enumerate(self.bands(owned)):
            marks.append(block(x + 1, y, wide - 2, 18, f"rank-{rank}"))
            words = f"rank {rank}" if wide > 52 else rank
            if wide > 12:
                marks.append(text(x + wide / 2, y + 13, words, "middle", 12, "paper", True))
            if rank:
                marks.append(line(x, self.top, x, y, "grid-strong", 1, "2 3"))
        return marks


def figures_of(x):
    """A number with its sign: −0.5."""
    return f"−{figures(-x)}" if x < 0 else figures(x)
