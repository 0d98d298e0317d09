"""The exercises of the chapter on activations tell right from wrong, and say why."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from verdicts import verdict

from allranks.check import activations as check


def plain(x, up, down):
    return down(F.gelu(up(x)))


def free(x, up, down):
    return checkpoint(lambda y: down(F.gelu(y)), up(x), use_reentrant=False)


def all_of_it(x, up, down):
    return checkpoint(plain, x, up, down, use_reentrant=False)


def too_late(x, up, down):
    return checkpoint(lambda y: down(F.gelu(y)), up(x), use_reentrant=False, early_stop=False)


def without_graph(x, up, down):
    with torch.no_grad():
        return plain(x, up, down)


def detached(x, up, down):
    return down(F.gelu(up(x.detach())))


@pytest.mark.parametrize(
    "exercise, answer, said",
    [
        (check.constants, (32, 2), "✓ sbh(32 + 2as/h)"),
        (check.constants, (None, None), "✗ Replace None with numbers"),
        (check.constants, 32, "✗ Two numbers"),
        (check.constants, (34, 2), "✗ 34 includes dropout"),
        (check.constants, (31, 2), "✗ c is not 31"),
        (check.constants, (32, 5), "✗ 5 includes dropout"),
        (check.constants, (32, 4), "✗ Without dropout, the product with V"),
        (check.constants, (32, 1), "✗ d is not 1"),
        (check.feed_forward, free, "✓ 10 sbh instead of 18"),
        (check.feed_forward, plain, "✗ It still keeps 18 sbh: the"),
        (check.feed_forward, all_of_it, "✗ On rank 0, with b, s, h = 2, 16, 32, it keeps only 2 sbh"),
        (check.feed_forward, too_late, "✗ On rank 0, with b, s, h = 2, 16, 32, it takes 3.5 forward passes"),
        (check.feed_forward, lambda x, up, down: None, "✗ On rank 0, with b, s, h = 2, 16, 32, the function"),
        (
            check.feed_forward,
            lambda x, up, down: x,
            "✗ On rank 0, with b, s, h = 2, 16, 32, the output differs",
        ),
        (
            check.feed_forward,
            lambda x, up, down: up(x),
            "✗ On rank 0, with b, s, h = 2, 16, 32, the output has",
        ),
        (check.feed_forward, without_graph, "✗ On rank 0, with b, s, h = 2, 16, 32, backward cannot go"),
        (check.feed_forward, detached, "✗ On rank 0, with b, s, h = 2, 16, 32, the gradients differ"),
        (check.feed_forward, lambda x, up, down: 1 / 0, "✗ Your function did not finish: rank"),
    ],
)
def test_an_answer_gets_one_line(exercise, answer, said, capsys):
    assert verdict(capsys, exercise, answer).startswith(said)
