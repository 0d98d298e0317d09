"""The checks of what ZeRO's traffic costs say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import zero_traffic as checks


@pytest.mark.parametrize(
    "answer, said",
    [
        (6240, "✓ 6,240 tokens"),
        (4160, "✗ That is for 2Ψ"),
        (12480, "✗ That is at the peak"),
        (3120, "✗ That is a factor of two off"),
        (1, "✗ With 1 tokens"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_tokens(capsys, answer, said):
    assert said in verdict(capsys, checks.tokens, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (1, "✓ Stage 1: 54 GB"),
        (0, "✗ Stage 0 holds 208 GB"),
        (2, "✗ Stage 2 fits, and sends 4.5 times"),
        (3, "✗ Stage 3 fits, and sends 12.0 times"),
        (4, "✗ The stages are"),
        (None, "✗"),
    ],
)
def test_stage(capsys, answer, said):
    assert said in verdict(capsys, checks.stage, answer)
