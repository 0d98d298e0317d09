"""The steps of the stories of single ranks, held against the arithmetic as in test_explorer_stories.py."""

from itertools import pairwise

from test_explorer_stories import state

from allranks.averaging import POINTS, apart, best, combined, descend, gradient, parts, split
from allranks.explorers import averaging
from allranks.ranks.patterns import circle, gaps, play, rounds, stuck


def played(title, **changed):
    given = {**state("waiting", title), **changed}
    return play(given["pattern"], given["ranks"], given["rank"], given["late"])


def test_waiting():
    turn, tree = played("One by one"), played("A tree")
    waited = [sum(gap.stop - gap.start for gap in gaps(turn) if gap.rank == rank) for rank in range(8)]
    assert waited[7] == max(waited) == 6 and all(gap.peer == 0 for gap in gaps(turn))
    assert len(tree.world.events) == len(turn.world.events)
    assert rounds(tree) < rounds(turn) / 2
    deadlock = played("The surprise")
    assert len(circle(deadlock)) == 5 and deadlock.world.events == []
    out = played("The way out")
    assert rounds(out) == 1 and len(out.world.events) == 4
    limit = played("The limit")
    for_ever = stuck(limit)
    assert len(for_ever) == 4 and circle(limit) == []
    assert sum(gap.peer in for_ever for gap in gaps(limit) if gap.stop is None) == 3
    assert [p for p in range(2, 9) if rounds(played("Your turn", ranks=p)) > rounds(played("Your turn"))] == [
        3,
        5,
        7,
    ]
    for p in (3, 5, 7):
        on_time = played("Your turn", ranks=p).world.clock
        late = [played("Your turn", ranks=p, rank=rank, late=1).world.clock for rank in range(p)]
        delayed = [sum(a > b for a, b in zip(clock, on_time, strict=True)) for clock in late]
        assert [rank for rank, count in enumerate(delayed) if count == 0] == [p - 1]


def run(title, **changed):
    given = {**state("averaging", title), **changed}
    sizes = split(16, given["ranks"], given["extra"])
    path = descend(POINTS, sizes, given["way"], given["rate"], 12, averaging.START)
    one = descend(POINTS, [16], "mean", given["rate"], 12, averaging.START)
    return path, apart(path, one), given["step"]


def test_averaging():
    path, _, step = run("Before")
    assert len(set(path[step])) == 1
    owned = [
        gradient(weights, own) for weights, own in zip(path[0], parts(POINTS, split(16, 4)), strict=True)
    ]
    assert len(set(owned)) == 4
    path, distance, step = run("One model")
    assert max(distance[: step + 1]) < 1e-9 and len(set(path[step])) == 1
    path, distance, step = run("Kept apart")
    assert len(set(path[step])) == 4 and distance[step] > 1
    path, distance, step = run("The surprise")
    assert len(set(path[step])) == 1 and distance[step] > 0.1
    path, distance, step = run("The limit")
    swings = [abs(weights[0][1] - best(POINTS)[1]) for weights in path]
    assert all(after > before for before, after in pairwise(swings))
    once = combined([gradient(averaging.START, POINTS)] * 8, [2] * 8, "sum")[0]
    assert abs(once[0] - 8 * gradient(averaging.START, POINTS)[0]) < 1e-9
    _, distance, step = run("Your turn")
    assert distance[step] > 0.1 and run("Your turn", way="weighted")[1][step] < 1e-9
