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
        (HERE.fit, (30, RATE), "✗ In seconds"),
        (HERE.fit, (0, 1e6 / 0.12e-3), "✗ That leaves no latency"),
        (HERE.fit, (30e-6, 10e6 / 0.93e-3), "✗ 10 MB take 0.93 ms with"),
        (HERE.fit, (30e-6, 1 / RATE), "✗ That is β"),
        (HERE.fit, (30e-6, 5e9), "✗ Not 5e+09 bytes per second"),
        (HERE.fit, (1e-6, RATE), "✗ Not 1e-06 s"),
        (HERE.fit, (None, None), "✗ Replace None with numbers"),
        (HERE.fit, 30e-6, "✗ Two numbers"),
        (HERE.bus, 60e9, "✓ 60 GB/s"),
        (HERE.bus, 32e9, "✗ That is the algorithm bandwidth"),
        (HERE.bus, 30e9, "✗ That is the factor of an all-gather"),
        (HERE.bus, 60, "✗ In bytes"),
        (HERE.bus, 1e9, "✗ Not 1e+09"),
        (HERE.bus, None, "✗ Replace None with a number"),
    ],
)
def test_an_answer_gets_its_verdict(capsys, one_check, answer, says):
    assert verdict(capsys, one_check, answer).startswith(says)
