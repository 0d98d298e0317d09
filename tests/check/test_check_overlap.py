"""The checks of Overlap as code say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import overlap


def right(dy, x, weight, start):
    finish = start(dy @ weight)
    return (lambda of_weight: (finish(), of_weight))(dy.T @ x)


def waits_first(dy, x, weight, start):
    return start(dy @ weight)(), dy.T @ x


def starts_late(dy, x, weight, start):
    of_weight = dy.T @ x
    return start(dy @ weight)(), of_weight


def without_a_sum(dy, x, weight, start):
    return dy @ weight, dy.T @ x


def without_a_wait(dy, x, weight, start):
    return start(dy @ weight), dy.T @ x


def transposed(dy, x, weight, start):
    finish, of_weight = start(dy @ weight), x.T @ dy
    return finish(), of_weight


@pytest.mark.parametrize(
    "answer, says",
    [
        (right, "✓"),
        (waits_first, "nothing hides the sum"),
        (starts_late, "nothing hides the sum"),
        (without_a_sum, "gradient of x differs"),
        (without_a_wait, "did you call finish()"),
        (transposed, "gradient of weight differs"),
        (lambda *parts: None, "returns nothing yet"),
    ],
)
def test_the_sum_runs_beside_the_product_that_does_not_need_it(capsys, answer, says):
    assert says in verdict(capsys, overlap.backward, answer)


@pytest.mark.parametrize(
    "answer, says",
    [
        (3, "✓"),
        (None, "None"),
        (2, "before anything can be sent"),
        (10, "without pieces"),
        (17, "instead of subtracting it"),
        (11, "whole step"),
        (5, "not right"),
    ],
)
def test_one_product_of_eight_hides_nothing(capsys, answer, says):
    assert says in verdict(capsys, overlap.exposed, answer)
