"""Why do ranks that average their gradients take the step of one process? A line fitted to points.

The loss of the weights (a, b) on points (x, y) is the mean of (a + bx − y)²/2. Each rank has the gradient
of this mean over its own points; what is done with the ranks' gradients decides where their weights go.
"""

import math

from .inputs import one_of, quantity, whole

WAYS = ("mean", "weighted", "sum", "none")
"""What ranks do with their gradients: average them, also by their numbers of points, add them, or nothing."""


POINTS = tuple(
    zip(
        [(place - 7.5) / 4 for place in range(16)],
        (-0.1, -0.2, -0.2, -0.2, -0.2, -0.1, 0.1, 0.3, 0.5, 0.8, 1.2, 1.6, 2.0, 2.5, 3.1, 3.7),
    )
)
"""Points on a curve, so that each part of them wants another line."""


def added(values):
    """The sum, added in order in every Python: CPython's `sum` has kept more digits since 3.12."""
    total = 0.0
    for value in values:
        total += value
    return total


def split(count, ranks, extra=0):
    """How many points each rank has: rank 0 `extra` more than its share, the others a share of the rest."""
    whole("ranks", ranks, 2), whole("count", count, ranks), whole("extra", extra, 0)
    first = count // ranks + extra
    rest, others = count - first, ranks - 1
    if rest < others:
        raise ValueError(f"extra must leave one of {count} points to each of {ranks} ranks, not be {extra}")
    return [first] + [rest // others + (place < rest % others) for place in range(others)]


def parts(points, sizes):
    """The points of each rank, in order."""
    found, at = [], 0
    for size in sizes:
        found.append(points[at : at + size])
        at += size
    return found


def gradient(weights, points):
    """The gradient of the mean loss on these points: (by a, by b)."""
    a, b = weights
    errors = [a + b * x - y for x, y in points]
    by_b = added([error * x for error, (x, _) in zip(errors, points)])
    return added(errors) / len(points), by_b / len(points)


def combined(gradients, sizes, way):
    """What the ranks make of their gradients, each of `sizes` points, in one of WAYS: a gradient for each."""
    one_of("way", way, WAYS)
    if way == "none":
        return gradients
    shares = sizes if way == "weighted" else [1] * len(sizes)
    over = 1 if way == "sum" else sum(shares)
    total = [added([share * each[i] for share, each in zip(shares, gradients)]) / over for i in (0, 1)]
    return [tuple(total)] * len(sizes)


def descend(points, sizes, way, rate, steps, start=(0.0, 0.0)):
    """The weights of each rank before the first step and after each: `steps` + 1 lists of (a, b)."""
    quantity("rate", rate), whole("steps", steps, 0)
    owned, path = parts(points, sizes), [[start] * len(sizes)]
    for _ in range(steps):
        own = [gradient(weights, each) for weights, each in zip(path[-1], owned)]
        taken = combined(own, sizes, way)
        path.append([moved(weights, each, rate) for weights, each in zip(path[-1], taken)])
    return path


def moved(weights, by, rate):
    """The weights after a step of gradient descent."""
    return weights[0] - rate * by[0], weights[1] - rate * by[1]


def apart(path, alone):
    """The largest distance, at each step, of a rank's weights from those of one process."""
    found = []
    for ranks, one in zip(path, alone):
        found.append(max([math.sqrt((a - one[0][0]) ** 2 + (b - one[0][1]) ** 2) for a, b in ranks]))
    return found


def best(points):
    """The weights with the least loss."""
    n = len(points)
    x, y = added([x for x, _ in points]) / n, added([y for _, y in points]) / n
    slope = added([(u - x) * (v - y) for u, v in points]) / added([(u - x) ** 2 for u, _ in points])
    return y - slope * x, slope
