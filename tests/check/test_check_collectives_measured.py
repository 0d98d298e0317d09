"""The checks of Collectives, measured: ✓ for right answers, a hint for the usual wrong ones."""

import pytest
from verdicts import verdict

from allranks import check

HERE = check.collectives_measured
RATE = 9e6 / 0.81e-3


@pytest.mark.parametrize(
    "one_check, answer, says",
    [
        (HERE.fit, (30e-6, RATE), "✓ α = 30 µs"),
        (HERE.fit, (30, RATE), "✗ Give the latency"),
        (HERE.fit, (0, 1e6 / 0.12e-3), "✗ That leaves out the latency"),
        (HERE.fit, (30e-6, 10e6 / 0.93e-3), "✗ 0.93 ms for 10 MB includes"),
        (HERE.fit, (30e-6, 1 / RATE), "✗ That is β"),
        (HERE.fit, (30e-6, 5e9), "✗ 5e+09 bytes per second is not"),
        (HERE.fit, (1e-6, RATE), "✗ 1e-06 s is not right"),
        (HERE.fit, (None, None), "✗ Replace None with numbers"),
        (HERE.fit, 30e-6, "✗ Two numbers"),
        (HERE.bus, 60e9, "✓ 60 GB/s"),
        (HERE.bus, 32e9, "✗ That is the algorithm bandwidth"),
        (HERE.bus, 30e9, "✗ That is the factor of an all-gather"),
        (HERE.bus, 60, "✗ Give the answer in bytes"),
        (HERE.bus, 1e9, "✗ 1e+09 is not right"),
        (HERE.bus, None, "✗ Replace None with a number"),
    ],
)
def test_an_answer_gets_its_verdict(capsys, one_check, answer, says):
    assert verdict(capsys, one_check, answer).startswith(says)
