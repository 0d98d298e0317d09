"""The checks of the chapter Five axes."""

import math

import pytest
from verdicts import verdict

from allranks.check import five_axes


def product(sizes, left_out):
    return math.prod(size for axis, size in sizes.items() if axis not in left_out)


@pytest.mark.parametrize(
    "answer, said",
    [
        (lambda sizes, cut: product(sizes, ("pp", *cut)), "✓ Every copy is"),
        (product, "✗ On {'pp': 2, 'dp': 2, 'cp': 2, 'tp': 2}, for a parameter cut by no axis: the stages"),
        (
            lambda sizes, cut: product(sizes, ("pp",)),
            "cut by cp and tp, 2 ranks hold the same part, not 8",
        ),
        (lambda sizes, cut: sizes["dp"], "8 ranks hold the same part, not 2"),
        (lambda sizes, cut: None, "✗ The function returns nothing yet; it should return a number of ranks"),
    ],
)
def test_the_copies_of_a_parameter(capsys, answer, said):
    assert said in verdict(capsys, five_axes.copies, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (2, "✓ 2 ranks"),
        (8, "✗ dp has 8 ranks, but ep borrows from"),
        (64, "✗ That is for a parameter that no axis"),
        (16, "✗ That is for a matrix that tp cuts"),
        (32, "✗ That many ranks hold *different* experts"),
        (5, "✗ 5 is not right"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_over_how_many_ranks_an_expert_is_summed(capsys, answer, said):
    assert said in verdict(capsys, five_axes.borrowed, answer)
