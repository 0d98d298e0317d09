"""The checks of the case studies say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import case_studies as checks

RIGHT = 0.38 * 989.4e12 * 512 * 24 * 86_400 / (6 * 13.7e9) / 1e12


@pytest.mark.parametrize(
    "answer, said",
    [
        (RIGHT, "✓ 4.86 trillion"),
        (4.9, "✓"),
        (1e12 * RIGHT, "✗ Give the answer in trillions"),
        (RIGHT * 30 / 24, "✗ That is a month without failures"),
        (RIGHT / 4, "✗ Those are the tokens of the days"),
        (RIGHT / 0.38, "✗ That is at the GPUs' peak; they reach"),
        (3 * RIGHT, "✗ The backward pass counts too"),
        (5.2, "✗ 5.2 trillion is not right: how"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_month(capsys, answer, said):
    assert said in verdict(capsys, checks.month, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (4, "✓ 4 GPUs share a matrix, and each of 128 replicas has 9"),
        (1, "✗ That leaves 512 replicas"),
        (2, "✗ That leaves 256 replicas"),
        (8, "✗ Legal, but fewer are enough"),
        (3, "✗ 3 does not divide"),
        (0, "✗ 0 does not divide"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_sharing(capsys, answer, said):
    assert said in verdict(capsys, checks.sharing, answer)
