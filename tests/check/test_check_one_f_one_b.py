"""The checks of the chapter 1F1B say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks import schedules
from allranks.check import one_f_one_b


def order(stages, microbatches):
    orders = []
    for rank in range(stages):
        ahead = min(stages - 1 - rank, microbatches)
        mine = [("F", k, rank) for k in range(ahead)]
        for k in range(microbatches):
            if ahead + k < microbatches:
                mine.append(("F", ahead + k, rank))
            mine.append(("BW", k, rank))
        orders.append(mine)
    return orders


def gpipe(stages, microbatches):
    return schedules.gpipe(stages, microbatches).orders


def one_after_the_other(stages, microbatches):
    return [[(kind, k, r) for k in range(microbatches) for kind in ("F", "BW")] for r in range(stages)]


def backwards_first(stages, microbatches):
    return [mine[::-1] for mine in order(stages, microbatches)]


@pytest.mark.parametrize(
    "one_check, answer, said",
    [
        (one_f_one_b.order, order, "✓"),
        (one_f_one_b.order, gpipe, "rank 0 keeps 8 micro-batches, and 4 are enough"),
        (one_f_one_b.order, one_after_the_other, "can be reached"),
        (one_f_one_b.order, backwards_first, "✗ With 4 stages and 8 micro-batches: rank 0"),
        (one_f_one_b.order, lambda stages, microbatches: None, "returns nothing yet"),
        (one_f_one_b.chunks, 5, "✓ v = 5: 4.4%, where 1F1B has 21.9%"),
        (one_f_one_b.chunks, 4, "still 5.5%"),
        (one_f_one_b.chunks, 8, "but fewer are, too"),
        (one_f_one_b.chunks, None, "✗ Replace None with a number"),
    ],
)
def test_each_check_has_one_line(capsys, one_check, answer, said):
    assert said in verdict(capsys, one_check, answer)
