"""The checks of the chapter GPipe say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks import schedules
from allranks.check import gpipe


def paper_order(stages, microbatches):
    every = range(microbatches)
    return [
        [("F", k, rank) for k in every] + [("BW", k, rank) for k in reversed(every)] for rank in range(stages)
    ]


def backwards_first(stages, microbatches):
    return [list(reversed(order)) for order in paper_order(stages, microbatches)]


def as_torch(stages, microbatches):
    return schedules.gpipe(stages, microbatches).orders


@pytest.mark.parametrize(
    "one_check, answer, said",
    [
        (gpipe.paper_order, paper_order, "✓"),
        (gpipe.paper_order, as_torch, "the last should come first"),
        (gpipe.paper_order, backwards_first, "✗ With 1 stages and 1 micro-batches: rank 0"),
        (gpipe.paper_order, lambda stages, microbatches: None, "returns nothing yet"),
        (gpipe.enough, 133, "✓ 133 micro-batches leave 5.00%"),
        (gpipe.enough, 140, "✗ That is 5 % of the *ideal* time"),
        (gpipe.enough, 32, "still idle 17.9%"),
        (gpipe.enough, 200, "but so are fewer"),
        (gpipe.enough, None, "✗ Replace None with a number"),
    ],
)
def test_each_check_has_one_line(capsys, one_check, answer, said):
    assert said in verdict(capsys, one_check, answer)
