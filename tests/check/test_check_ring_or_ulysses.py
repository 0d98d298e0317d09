"""The checks of ring, all-gather or Ulysses say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import ring_or_ulysses


@pytest.mark.parametrize(
    "answer, says",
    [
        (7, "✓ 7: for g ≥ 8, the all-gather among"),
        (8, "✗ Almost"),
        (15, "✗ Queries travel there"),
        (3, "✗ 3 is not right"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_shared(capsys, answer, says):
    assert says in verdict(capsys, ring_or_ulysses.shared, answer)


@pytest.mark.parametrize(
    "answer, says",
    [
        (62.9, "✓"),
        (None, "None"),
        (4.19, "one hop"),
        (67.1, "own part"),
        (31.5, "two bytes"),
        (503.3, "eight heads"),
        (1006.6, "shares them"),
        (1, "is not"),
    ],
)
def test_what_a_layer_of_llama_3_sends(capsys, answer, says):
    assert says in verdict(capsys, ring_or_ulysses.megabytes_sent, answer)
