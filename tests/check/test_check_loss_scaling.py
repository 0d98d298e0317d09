"""The checks of Loss scaling: ✓ for right answers, a hint for the usual wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks import check

HERE = check.loss_scaling


def next_scale(scale, good_steps, finite, growth_interval):
    if not finite:
        return scale / 2, 0
    if good_steps + 1 == growth_interval:
        return scale * 2, 0
    return scale, good_steps + 1


def test_the_rule_of_grad_scaler_is_right(capsys):
    assert verdict(capsys, HERE.decide, next_scale).startswith("✓")


@pytest.mark.parametrize(
    "answer",
    [
        lambda scale, good, finite, n: (scale, good),
        lambda scale, good, finite, n: (scale / 2, good) if not finite else next_scale(scale, good, True, n),
        lambda scale, good, finite, n: None,
    ],
)
def test_other_rules_are_not(capsys, answer):
    assert verdict(capsys, HERE.decide, answer).startswith("✗")


def agreement(op):
    def agreed(finite):
        t = torch.tensor(float(finite))
        dist.all_reduce(t, op=op)
        return t.item() == 1

    return agreed


def test_ranks_agree_by_the_least_of_their_opinions(capsys):
    assert verdict(capsys, HERE.agreed, agreement(dist.ReduceOp.MIN)).startswith("✓")
    assert "say True, True, False, True" in verdict(capsys, HERE.agreed, agreement(dist.ReduceOp.MAX))
    assert "decides" in verdict(capsys, HERE.agreed, lambda finite: finite)


def dividing(before):
    def average(t):
        t /= before(dist.get_world_size())
        dist.all_reduce(t)
        t /= dist.get_world_size() / before(dist.get_world_size())

    return average


def in_fp32(t):
    wide = t.float()
    dist.all_reduce(wide, op=dist.ReduceOp.AVG)
    t.copy_(wide)


def test_an_average_divides_on_both_sides_of_the_sum(capsys):
    assert verdict(capsys, HERE.average, dividing(lambda p: p / 2)).startswith("✓")
    for before in (lambda p: 1, lambda p: p, lambda p: p**0.5):
        assert "as the mean" in verdict(capsys, HERE.average, dividing(before))
    assert "32 bytes" in verdict(capsys, HERE.average, in_fp32)
    assert "ranks did not" in verdict(capsys, HERE.average, lambda t: None)
