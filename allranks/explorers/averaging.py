"""Why do ranks that average their gradients equal one process? A line fitted to sixteen points.

The points, each rank's in its colour, and the lines that are fitted; then the plane of the two weights, with
lines of equal loss: the steps of one process, those of the ranks, and from where they are an arrow for each
rank's gradient. `allranks.averaging` computes all of it.
"""

from ..averaging import POINTS, added, apart, best, descend, gradient, moved, parts, split
from .averaging_plane import Data, Plane, figures_of
from .frame.controls import Choice, Integer, Scale, Steps
from .frame.handles import handle, handles_over, playhead
from .frame.lettering import legible
from .frame.svg import WIDE, line, mark, marks_over, picture, text
from .frame.words import figures

TITLE = "Averaging gradients"

WAYS = (
    ("mean", "averaged"),
    ("weighted", "weighted by points"),
    ("sum", "summed"),
    ("none", "kept apart"),
)
STEPS, MOST = 12, 7
CONTROLS = (
    Choice("way", "gradients are", WAYS, "mean"),
    Scale("ranks", "ranks p", ((2, "2"), (4, "4"), (8, "8")), 4),
    Steps("step", "steps", 1),
    Integer("extra", "more points on rank 0", 0, MOST, 0),
    Integer("lower", "last point lowered", 0, 6, 0),
    Scale("rate", "learning rate", tuple((each, str(each)) for each in (0.025, 0.05, 0.1, 0.2, 0.4)), 0.2),
)
START = (-1.0, -0.5)
DOWN = 0.5  # how far a point is lowered by one


def draw(width, *, way, ranks, step, extra, lower, rate):
    """The ranks after `step` steps beside one process, and the step to come."""
    step, extra = min(step, STEPS), min(extra, most(ranks))
    x, y = POINTS[-1]
    points = list(POINTS[:-1]) + [(x, y - DOWN * lower)]
    run = Run(points, split(len(points), ranks, extra), way, rate)
    data, plane, bottom = panels(width)
    head = f"{dict(WAYS)[way]}, {ranks} ranks: after {step} of {STEPS} steps"
    marks = [text(0, 14, head, bold=True)] + key(way, run)
    marks += fitted(data, run, step) + trodden(plane, run, step)
    cut = [(each, data.border(parts(points, split(len(points), ranks, each)), 0)) for each in places(ranks)]
    heights = [(each, data.y(y - DOWN * each)) for each in range(7)]
    foot = data.top + data.high + 13
    held = (
        playhead(width, "step", "steps", 12, width - 12, STEPS + 1, step, 54, head),
        handle(width, "extra", "end of rank 0's part", "x", cut, extra, foot, several(run.sizes[0], "point")),
        handle(
            width, "lower", "last point", "y", heights, lower, data.x(x), f"y = {figures(y - DOWN * lower)}"
        ),
    )
    return {
        "svg": legible(picture(width, bottom, marks), width),
        "text": said(run, way, step, rate),
        "marks": marks_over(width, bottom, touched(data, plane, run, step)),
        "handles": handles_over(width, bottom, held),
        "result": result(run, step),
        "insight": insight(run, way, rate, lower),
        "steps": STEPS + 1,
        "idle": [],
    }


def most(ranks):
    """The most points that rank 0 can take from the others."""
    return min(MOST, len(POINTS) - len(POINTS) // ranks - (ranks - 1))


def places(ranks):
    """What `extra` can be."""
    return range(most(ranks) + 1)


class Run:
    """The same steps by one process and by ranks, and what the ranks' gradients are on the way."""

    def __init__(self, points, sizes, way, rate):
        self.points, self.sizes, self.rate = points, sizes, rate
        self.owned = parts(points, sizes)
        self.alone = descend(points, [len(points)], "mean", rate, STEPS, START)
        self.path = descend(points, sizes, way, rate, STEPS + 1, START)
        self.apart = apart(self.path, self.alone)

    def own(self, step):
        """Each rank's own gradient at its weights."""
        return [gradient(weights, points) for weights, points in zip(self.path[step], self.owned)]

    def ranks(self):
        """The numbers of ranks that have weights of their own to show: one, if all are the same."""
        return range(len(self.sizes)) if self.path[1][0] != self.path[1][-1] else (0,)


# ---- the picture ----


def panels(width):
    """The panel of the points, that of the weights, and where the picture ends."""
    across, up, weights = (-2.05, 2.05), (-1.2, 4.0), ((-1.1, 2.5), (-1.4, 1.4))
    if width == WIDE:
        return Data(0, 82, 340, 262, across, up), Plane(378, 82, 342, 262, *weights), 374
    return Data(0, 82, 360, 150, across, up), Plane(0, 272, 360, 190, *weights), 486


def key(way, run):
    """What the lines are."""
    marks = [line(0, 29, 24, 29, "ink", 2, "5 3"), text(30, 33, "one process", size=12, ink="ink-soft")]
    marks.append(line(122, 29, 146, 29, "accent", 4))
    return marks + [text(152, 33, "ranks; thin arrows: each alone", size=12, ink="ink-soft")]


def colour(run, rank):
    """The colour of a rank's weights: its own, if they are not those of all."""
    return f"rank-{rank}" if len(run.ranks()) > 1 else "accent"


def fitted(data, run, step):
    """The points, whose they are, and the lines of the ranks and of one process."""
    marks = [data.frame(), text(6, data.top + 16, "points (x, y)", size=12, ink="ink-soft")]
    marks += data.owners(run.owned)
    for rank in run.ranks():
        marks += data.line(run.path[step][rank], colour(run, rank), 4 if len(run.ranks()) == 1 else 2)
    return marks + data.line(run.alone[step][0], "ink", 2, "5 3") + data.points(run.owned)


def trodden(plane, run, step):
    """The paths until now, and from where the ranks are an arrow for each gradient and for the step."""
    spread = added([x * x for x, _ in run.points]) / len(run.points)
    marks = plane.axes() + plane.contours(best(run.points), spread)
    for rank in run.ranks():
        way = [weights[rank] for weights in run.path[: step + 1]]
        marks += plane.path(way, colour(run, rank), 4 if len(run.ranks()) == 1 else 2)
    marks += plane.path([weights[0] for weights in run.alone[: step + 1]], "ink", 2, "5 3", 3)
    for rank, target in enumerate(targets(run, step)):
        marks += plane.step(run.path[step][rank], target, f"rank-{rank}")
    if len(run.ranks()) == 1:
        marks += plane.step(run.path[step][0], run.path[step + 1][0], "accent", True)
    if not any([plane.inside(*plane.at(weights)) for weights in run.path[step]]):
        words = "the ranks have left this plane"
        marks.append(text(plane.left + plane.wide / 2, plane.top + 36, words, "middle", 12, "alarm", True))
    return marks


def targets(run, step):
    """Where each rank would go by its own gradient."""
    return [moved(weights, by, run.rate) for weights, by in zip(run.path[step], run.own(step))]


def touched(data, plane, run, step):
    """Places: the part of each rank, the ends of the arrows, and the steps of one process."""
    marks, last = [], None
    for place, weights in enumerate(run.alone):
        x, y = plane.at(weights[0])
        if place != step and (last is None or abs(x - last[0]) + abs(y - last[1]) > 9):
            words = f"one process after {several(place, 'step')}: {said_weights(weights[0])}"
            marks.append(mark(x - 6, y - 6, 12, 12, f"step={place}", words))
            last = x, y
    own = run.own(step)
    for rank, (x, wide) in enumerate(data.bands(run.owned)):
        by = f"({figures_of(own[rank][0])}, {figures_of(own[rank][1])})"
        words = f"rank {rank}: {several(run.sizes[rank], 'point')}, gradient {by}"
        marks.append(mark(x, data.top, wide, data.high + 22, "", words, f"r{rank}"))
    for rank, target in enumerate(targets(run, step)):
        (x0, y0), (x1, y1) = plane.at(run.path[step][rank]), plane.at(target)
        if plane.inside(x0, y0):
            x, y = plane.way(x0, y0, x1, y1)
            words = f"rank {rank} alone would step to {said_weights(target)}"
            marks.append(mark(max(x - 7, 0), y - 7, 14, 14, "", words, f"r{rank}"))
    return marks


# ---- the words ----


def several(n, what):
    """`1 step`, `3 steps`."""
    return f"{n} {what}{'s' * (n != 1)}"


def said_weights(weights):
    """`a = 0.5, b = −1`."""
    return f"a = {figures_of(weights[0])}, b = {figures_of(weights[1])}"


def distance(run, step):
    """How far the ranks are from one process; rounding is no distance."""
    return figures(run.apart[step]) if run.apart[step] > 1e-9 else "0"


def result(run, step):
    """How far the ranks are from one process."""
    who = "ranks" if len(run.ranks()) == 1 else "farthest rank"
    return distance(run, step), f"distance from one process to the {who}, after {several(step, 'step')}"


def insight(run, way, rate, lower):
    """What the ranks do with their gradients, and what this makes of the step, in a sentence."""
    p, sizes = len(run.sizes), run.sizes
    if way == "none":
        return "Each rank follows its own points: soon there are as many models as ranks."
    if way == "sum":
        times = (
            "the mean of the ranks' gradients" if max(sizes) != min(sizes) else "the gradient of one process"
        )
        return f"Undivided, the sum is {p} times {times}, as with a learning rate of {figures(p * rate)}."
    if way == "weighted":
        return (
            "Weighted by its points, each gradient counts as in one process, however the points are divided."
        )
    if max(sizes) != min(sizes):
        words = f"A mean of means is not the mean: the {several(sizes[0], 'point')} of rank 0 count"
        return f"{words} as much as the {several(sizes[-1], 'point')} of rank {p - 1}."
    if lower:
        return (
            f"Only rank {p - 1} has the lowered point, yet all ranks follow it: its gradient is in the mean."
        )
    return "With equal parts, the mean of the ranks' gradients is the gradient of all points together."


def said(run, way, step, rate):
    """The numbers of the picture in words."""
    sizes = ", ".join([str(size) for size in run.sizes])
    words = (
        f"A line a + bx is fitted to {len(run.points)} points on {len(run.sizes)} ranks ({sizes} points); "
    )
    words += f"the gradients are {dict(WAYS)[way]}, the learning rate is {figures(rate)}. "
    words += f"After {several(step, 'step')}, one process has {said_weights(run.alone[step][0])}, "
    if run.apart[step] < 1e-9:
        words += "and so has every rank. "
    elif len(run.ranks()) > 1:
        words += f"and the ranks are up to {distance(run, step)} away from that. "
    else:
        words += f"and every rank {said_weights(run.path[step][0])}, {distance(run, step)} away. "
    return words + f"After {STEPS} steps, the ranks are {distance(run, STEPS)} away."
