"""The checks of the chapter on compression say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
from verdicts import verdict

from allranks.check import compression as checks


def one_bit(total, size=None, left=None):
    sent = total.sign() * (total.abs().mean() if size is None else size(total))
    return sent, total - sent if left is None else left(total)


@pytest.mark.parametrize(
    "answer, said",
    [
        (one_bit, "✓ It sends one bit for each element"),
        (lambda t: one_bit(t, left=torch.zeros_like), "what is left do not add up"),
        (lambda t: one_bit(t, size=lambda t: t.abs().max()), "which size makes it"),
        (lambda t: one_bit(t, size=lambda t: t.abs().median()), "which size makes it"),
        (lambda t: (t, torch.zeros_like(t)), "one size for all"),
        (lambda t: (-one_bit(t)[0], t + one_bit(t)[0]), "wrong sign"),
        (lambda t: t, "✗"),
        (None, "✗"),
    ],
)
def test_one_bit(capsys, answer, said):
    assert said in verdict(capsys, checks.one_bit, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (48, "✓ 48 %"),
        (0.48, "a share; give"),
        (32, "Almost"),
        (16, "leaves the indices out"),
        (96, "around the ring twice"),
        (0.5, "✗"),
        (None, "None"),
    ],
)
def test_percent(capsys, answer, said):
    assert said in verdict(capsys, checks.percent, answer)
