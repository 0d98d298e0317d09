"""The checks of the chapter on local updates say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
from verdicts import verdict

from allranks.check import local_updates as checks


def outer(start, ends, speed, rate, momentum, sign=1, look_ahead=True, average=False, lost=False):
    mean = torch.stack(ends).mean(0)
    gradient = sign * (start - mean)
    new = momentum * speed + gradient
    step = gradient + momentum * new if look_ahead else new
    return mean if average else start - rate * step, speed if lost else new


def wrong(**how):
    return lambda *given: outer(*given, **how)


@pytest.mark.parametrize(
    "answer, said",
    [
        (outer, "✓ This is DiLoCo's outer step"),
        (wrong(sign=-1), "weights move away from the ranks'"),
        (wrong(average=True), "plain average"),
        (wrong(look_ahead=False), "without Nesterov's look-ahead"),
        (wrong(lost=True), "The new momentum is wrong"),
        (lambda start, ends, *_: (ends[0], start), "differ from torch.optim.SGD's"),
        (lambda *_: None, "✗"),
        (None, "✗"),
    ],
)
def test_outer_step(capsys, answer, said):
    assert said in verdict(capsys, checks.outer_step, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (1.12, "✓ 1.12 Gbit/s"),
        (0.14, "gigabytes"),
        (4.48, "16 bits"),
        (56, "every step"),
        (5.6, "Gbit per step; a"),
        (3, "is not right"),
        (None, "None"),
    ],
)
def test_gbits(capsys, answer, said):
    assert said in verdict(capsys, checks.gbits, answer)
