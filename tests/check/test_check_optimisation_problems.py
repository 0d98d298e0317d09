"""The ten problems: ✓ for the right number, what was forgotten for a wrong one, never an exception."""

import pytest
from verdicts import assert_number

from allranks.check import optimisation_problems as problems


@pytest.mark.parametrize(
    "problem, right, wrong, hint",
    [
        ("noise", 1024, 2048, "twice the fewest steps"),
        ("rate", 6.4, 3.2, "Two micro-batches"),
        ("rate", 6.4, 0.8, "square root"),
        ("dense_again", 250, 500, "in four bytes"),
        ("dense_again", 250, 125, "around the ring twice"),
        ("low_rank", 746.3, 2985, "four columns"),
        ("alone", 100, 80, "1.6 Gbit"),
        ("kept", 30, 20, "without the outer optimizer"),
        ("kept", 30, 25, "outer momentum"),
        ("kept", 30, 240, "share the states"),
        ("server", 12.52, 24, "the weights once; one that"),
        ("server", 12.52, 12, "Almost"),
        ("stale", 0.1736, 0.1423, "four updates old"),
        ("stale", 0.1736, 0.2, "costs more"),
        ("repeated", 62.5, 0.9766, "without repeating"),
        ("repeated", 62.5, 0.625, "share; give it"),
        ("top_k", 0.4024, 3.15, "dense"),
        ("top_k", 0.4024, 0.3024, "which takes 0.1 s"),
        ("top_k", 0.4024, 0.1032, "are gathered"),
        ("top_k", 0.4024, 0.3016, "which takes 0.1 s"),
    ],
)
def test_a_problem(capsys, problem, right, wrong, hint):
    assert_number(capsys, getattr(problems, problem), right, wrong, hint)
