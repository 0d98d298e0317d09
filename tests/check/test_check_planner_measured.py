"""The checks of the planner against measurements say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import planner_measured as checks


@pytest.mark.parametrize(
    "answer, said",
    [
        (45, "✓ 45 %"),
        (30, "✗ That halves everything"),
        (80, "✗ The share has"),
        (50, "✗ 50 % is not right"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_executed(capsys, answer, said):
    assert said in verdict(capsys, checks.executed, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (4, "✓ 4 pieces a stage, 128 in all"),
        (3, "✗ That leaves out the embedding and the output"),
        (8, "✗ With 8 pieces a stage there are 256"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_pieces(capsys, answer, said):
    assert said in verdict(capsys, checks.pieces, answer)
