"""The checks of the chapter Three axes measured."""

import pytest
from verdicts import verdict

from allranks.check import three_d_measured


@pytest.mark.parametrize(
    "answer, said",
    [
        (63 / (512 + 63), "✓ 11.0% of the time, with 512 micro-batches"),
        (63 / 512, "✗ That is idle time over *working* time"),
        (63 / (3072 + 63), "✗ That gives each"),
        (10.96, "✗ A share is a number between 0 and 1"),
        (0.5, "✗ 0.5 is not right"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_the_bubble(capsys, answer, said):
    assert said in verdict(capsys, three_d_measured.bubble, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (8.7, "✓ 8.7 GB"),
        (2 * 23 / 24 * 2 * 145.6 / 64, "✓ 8.7 GB"),
        (2 * 23 / 24 * 2 * 145.6, "✗ That is for the whole model"),
        (2 * 23 / 24 * 2 * 145.6 / 8, "✗ A rank's part is an eighth of each"),
        (23 / 24 * 2 * 145.6 / 64, "✗ That is only one half of the all-reduce"),
        (2 * 23 / 24 * 4 * 145.6 / 64, "✗ That is 4 bytes"),
        (8.7 * 24, "✗ However many replicas there are"),
        (1, "✗ 1 GB is not right"),
        (None, "✗ Replace None with a number"),
    ],
)
def test_what_is_sent_along_dp(capsys, answer, said):
    assert said in verdict(capsys, three_d_measured.gigabytes_along_dp, answer)
