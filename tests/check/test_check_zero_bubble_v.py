"""The checks of the chapter The V say ✓ to right answers and ✗, with a hint, to wrong ones."""

import itertools

import pytest
from verdicts import verdict

from allranks import schedules
from allranks.check import zero_bubble_v
from allranks.simulate import simulate

KINDS = ("F", "B", "W", "idle")
BEST = [
    "F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3",
    "F0 F1 B0 W0 B1 W1 F2 F3 B2 W2 B3 W3",
    "F0 B0 F1 B1 W0 W1 F2 B2 F3 B3 W2 W3",
]


def searched(limit=zero_bubble_v.ROOM):
    made = schedules.zero_bubble(zero_bubble_v.STAGES, zero_bubble_v.MICROBATCHES, limit)
    return [" ".join(f"{kind}{k}" for kind, k, _ in order) for order in made.orders]


def whole_backwards():
    return [row.replace("B", "BW") for row in (" ".join(w for w in r.split() if w[0] != "W") for r in BEST)]


def legal_moves(state, rank, idle):
    """What `rank` can do in one time slot; state: for each rank how many F, B, W and idle slots are done."""
    p, m, room = zero_bubble_v.STAGES, zero_bubble_v.MICROBATCHES, zero_bubble_v.ROOM
    f, b, w, waited = state[rank]
    if w == m:
        return [""]
    moves = ["B"] if b < f and (rank == p - 1 or state[rank + 1][1] > b) else []
    if f < m and (rank == 0 or state[rank - 1][0] > f) and f - w < room:
        moves.append("F")
    if w < b:
        moves.append("W")
    return moves + ([""] if f == 0 else ["idle"] if waited < idle else [])


def exists(idle):
    """Whether any order of the puzzle leaves each rank at most `idle` slots between its operations."""
    start = ((0, 0, 0, 0),) * zero_bubble_v.STAGES
    seen, open_states = {start}, [start]
    while open_states:
        state = open_states.pop()
        if all(w == zero_bubble_v.MICROBATCHES for _, _, w, _ in state):
            return True
        for moves in itertools.product(*(legal_moves(state, rank, idle) for rank in range(len(state)))):
            after = tuple(
                tuple(
                    count + (move == kind)
                    for count, kind in zip(counts, ("F", "B", "W", "idle"), strict=True)
                )
                for counts, move in zip(state, moves, strict=True)
            )
            if after not in seen:
                seen.add(after)
                open_states.append(after)
    return False


def test_no_order_of_the_puzzle_idles_less_than_its_second_target():
    assert exists(zero_bubble_v.LEAST)
    assert not exists(zero_bubble_v.LEAST - 1)


def test_the_first_target_of_the_puzzle_is_what_the_automatic_search_finds():
    timeline = simulate(
        schedules.zero_bubble(zero_bubble_v.STAGES, zero_bubble_v.MICROBATCHES, zero_bubble_v.ROOM)
    )
    assert max(timeline.spans) - timeline.ideal == zero_bubble_v.SEARCHED


@pytest.mark.parametrize(
    "one_check, answer, said",
    [
        (zero_bubble_v.puzzle, BEST, "✓ A bubble of 5, and three ranks train with it. No order"),
        (
            zero_bubble_v.puzzle,
            searched(),
            "✓ A bubble of 7, and three ranks train with it. The second target is 5",
        ),
        (zero_bubble_v.puzzle, searched(3), "✗ Rank 0 holds 3 micro-batches at once; it has room for 2."),
        (
            zero_bubble_v.puzzle,
            whole_backwards(),
            "✗ The schedule is legal, and its bubble is 9. The first target is 7.",
        ),
        (
            zero_bubble_v.puzzle,
            [row[:-3] for row in BEST],
            "✗ The schedule is not legal: no rank has the weight gradient",
        ),
        (zero_bubble_v.puzzle, BEST[:2], "✗ There are 2 rows"),
        (zero_bubble_v.puzzle, ["F0 Q0"] * 3, "✗ Rank 0: write F0"),
        (
            zero_bubble_v.dualpipe,
            lambda p, f, b, w: (p / 2 - 1) * (f + 2 * b - w),
            "✓ (p/2 - 1)(T_F + 2T_B - T_W)",
        ),
        (zero_bubble_v.dualpipe, lambda p, f, b, w: (p / 2 - 1) * (f + 2 * b - 2 * w), "one paper's B for"),
        (zero_bubble_v.dualpipe, lambda p, f, b, w: (p - 1) * (f + 2 * b - w), "should be 0, not 2"),
        (zero_bubble_v.dualpipe, lambda p, f, b, w: None, "returns nothing yet"),
    ],
)
def test_each_check_has_one_line(capsys, one_check, answer, said):
    assert said in verdict(capsys, one_check, answer)
