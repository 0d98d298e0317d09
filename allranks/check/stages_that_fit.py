"""The exercise of the chapter Stages that fit."""

import itertools
import random

from allranks.check import exercise

CASES = (  # costs, memory, stages, limit
    ([1, 1, 1, 1, 1, 5], [1, 1, 1, 1, 1, 1], 3, 3),
    ([1, 1, 1, 1, 1, 5], [1, 1, 1, 1, 1, 1], 3, 6),
    ([2, 3, 2, 3, 2, 3, 1], [4, 1, 1, 1, 1, 1, 4], 3, 5),
    ([3, 1, 1, 1], [2, 2, 2, 2], 2, 3),
)


def _cut(pieces, cuts):
    ends = [0, *cuts, len(pieces)]
    return [pieces[a:b] for a, b in itertools.pairwise(ends)]


def _least(costs, memory, stages, limit):
    """The smallest cost of the slowest stage, of all cuts that fit, or None."""
    fitting = [
        max(map(sum, _cut(costs, cuts)))
        for cuts in itertools.combinations(range(1, len(costs)), stages - 1)
        if max(map(sum, _cut(memory, cuts))) <= limit
    ]
    return min(fitting, default=None)


@exercise
def fitting(answer):
    """`answer(costs, memory, stages, limit)` lists the costs of each stage, or is None if nothing fits."""
    numbers = random.Random(0)
    drawn = [
        ([numbers.randint(1, 9) for _ in range(8)], [numbers.randint(1, 4) for _ in range(8)], stages, limit)
        for stages, limit in ((2, 12), (3, 9), (4, 7))
    ]
    for costs, memory, stages, limit in (*CASES, *drawn):
        given = f"fitting({costs}, {memory}, {stages}, {limit})"
        least = _least(costs, memory, stages, limit)
        got = answer(list(costs), list(memory), stages, limit)
        if least is None:
            assert got is None, f"{given} should return None: no cut fits."
            continue
        assert got is not None, f"{given} returned None, but a cut with a slowest stage of {least} fits."
        got = [list(stage) for stage in got]
        assert list(itertools.chain(*got)) == costs, (
            f"{given} should return the costs in their order, cut into stages."
        )
        assert len(got) == stages and all(got), f"{given} should return {stages} lists, none of them empty."
        cuts = list(itertools.accumulate(len(stage) for stage in got))[:-1]
        most = max(map(sum, _cut(memory, cuts)))
        assert most <= limit, f"{given}: a stage needs memory {most}, but the limit is {limit}."
        slowest = max(map(sum, got))
        assert slowest == least, f"{given}: the slowest stage takes {slowest}, but {least} is possible."
    return "It returns the fastest cut that fits, and None where none does."
