"""The checks of the chapter Where each axis goes say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import placement


@pytest.mark.parametrize(
    "one_check, answer, said",
    [
        (placement.members, lambda rank, t, p, d: [rank % (t * p) + i * t * p for i in range(d)], "✓"),
        (
            placement.members,
            lambda rank, t, p, d: list(range(d)),
            "rank 4 should be in [0, 4], not in [0, 1]",
        ),
        (placement.members, None, "✗"),
        (placement.best_order, ["tp", "dp", "pp"], "✓ 0.53 s"),
        (
            placement.best_order,
            ["tp", "pp", "dp"],
            "✗ This order takes 0.97 s a step; another is faster. Which axis sends most?",
        ),
        (placement.best_order, ["tp", "tp", "dp"], "✗ List each of"),
    ],
)
def test_one_list(capsys, one_check, answer, said):
    assert said in verdict(capsys, one_check, answer)
