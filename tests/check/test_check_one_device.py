"""The exercises of the chapter on one device tell right from wrong, and say why."""

import pytest
from verdicts import verdict

from allranks.check import one_device as check


@pytest.mark.parametrize(
    "exercise, answer, said",
    [
        (check.tokens, 305, "✓ 304 tokens"),
        (check.tokens, None, "✗ Replace None with a number"),
        (check.tokens, 0, "✗ A number of tokens is positive"),
        (check.tokens, 152, "✗ That is about a factor of two off: a number in bf16"),
        (check.tokens, 610, "✗ That is about a factor of two off: a multiplication"),
        (check.tokens, 2048, "✗ With 2048 tokens the intensity is"),
        (check.tokens, "many", "✗ 'many' is not a number"),
        (check.rate, 8242, "✓ 8,242 tokens a second"),
        (check.rate, None, "✗ Replace None with a number"),
        (check.rate, 20604, "✗ That is at the peak"),
        (check.rate, 24725, "✗ 2N FLOPs are the forward"),
        (check.rate, 100, "✗ 100 is not right"),
    ],
)
def test_an_answer_gets_one_line(exercise, answer, said, capsys):
    assert verdict(capsys, exercise, answer).startswith(said)
