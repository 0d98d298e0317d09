"""The check of the chapter Zero bubble says ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
from verdicts import verdict

from allranks.check import zero_bubble


def by_hand(kind, gradient, x, weight):
    return gradient @ weight if kind == "B" else gradient.flatten(0, -2).T @ x.flatten(0, -2)


@pytest.mark.parametrize(
    "one_check, answer, said",
    [
        (zero_bubble.by_hand, by_hand, "✓ Both equal what autograd computes"),
        (
            zero_bubble.by_hand,
            lambda *given: None,
            '✗ "B" gives nothing; the shape should be (2, 3, 4) here.',
        ),
        (
            zero_bubble.by_hand,
            lambda kind, g, x, w: g @ w,
            '✗ "W" gives shape (2, 3, 4); the shape should be (6, 4)',
        ),
        (zero_bubble.by_hand, lambda kind, g, x, w: torch.zeros_like(x), '✗ "B" gives the wrong numbers'),
    ],
)
def test_each_check_has_one_line(capsys, one_check, answer, said):
    assert said in verdict(capsys, one_check, answer)
