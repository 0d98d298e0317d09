"""The checks of the chapter Expert balance: capacity, drops and losses."""

import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import expert_balance
from allranks.parallel.experts import places


def first_choices_first(scores, capacity):
    chosen = scores.topk(2).indices
    kept = places(chosen, scores.shape[1]) < capacity
    return torch.zeros_like(scores).scatter(1, chosen, kept.float())


def token_by_token(scores, capacity):
    mask, taken = torch.zeros_like(scores), [0] * scores.shape[1]
    for token, pair in enumerate(scores.topk(2).indices.tolist()):
        for expert in pair:
            if taken[expert] < capacity:
                mask[token, expert] = 1
                taken[expert] += 1
    return mask


def without_limit(scores, capacity):
    return torch.zeros_like(scores).scatter(1, scores.topk(2).indices, 1)


def test_first_choices_go_before_second_ones(capsys):
    assert verdict(capsys, expert_balance.dispatch, first_choices_first).startswith("✓")
    assert "before its second choice" in verdict(capsys, expert_balance.dispatch, token_by_token)
    assert "an expert gets" in verdict(capsys, expert_balance.dispatch, without_limit)
    assert "returns nothing" in verdict(capsys, expert_balance.dispatch, lambda scores, capacity: None)
    assert "the shape is" in verdict(capsys, expert_balance.dispatch, lambda scores, capacity: scores[:1])


def step(bias, chosen, rate, reduce=True):
    load = torch.bincount(chosen.flatten(), minlength=len(bias)).float()
    if reduce:
        dist.all_reduce(load)
    return bias + rate * (load.mean() - load).sign()


def test_a_bias_is_that_of_all_tokens(capsys):
    assert verdict(capsys, expert_balance.nudge, step).startswith("✓")
    alone = verdict(capsys, expert_balance.nudge, lambda *given: step(*given, reduce=False))
    assert "different biases" in alone
    other = verdict(capsys, expert_balance.nudge, lambda bias, chosen, rate: step(bias, chosen, -rate))
    assert "way round: the" in other
    assert "one process" in verdict(capsys, expert_balance.nudge, lambda bias, chosen, rate: bias)
    assert "returns nothing" in verdict(capsys, expert_balance.nudge, lambda bias, chosen, rate: None)
