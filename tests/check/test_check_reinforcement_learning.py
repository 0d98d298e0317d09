"""The checks on reinforcement learning say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks import inference
from allranks.check import reinforcement_learning as checks


def backwards(ranks, parts):
    """Another right answer: the groups in another order, as tuples."""
    return [tuple(range(first, ranks, ranks // parts)) for first in reversed(range(ranks // parts))]


def neighbours(ranks, parts):
    return [list(range(first, first + parts)) for first in range(0, ranks, parts)]


@pytest.mark.parametrize(
    "answer, said",
    [
        (inference.generation_groups, "✓ 6 layouts"),
        (backwards, "✓ 6 layouts"),
        (neighbours, "generates with slices 2 to 3, and would have to store its own"),
        (lambda ranks, parts: [each[::-1] for each in backwards(ranks, parts)], "rank 3 trains with slice 3"),
        (lambda ranks, parts: [list(range(ranks))], "should have 2 ranks"),
        (lambda ranks, parts: [[0]] * ranks, "belongs to exactly one group"),
        (lambda ranks, parts: None, "expected a list of lists of ranks; got None"),
        (None, "✗"),
    ],
)
def test_groups(capsys, answer, said):
    assert said in verdict(capsys, checks.groups, answer)


def summed(rewards, bias=1.0):
    count, total = torch.tensor(float(len(rewards))), rewards.sum(0)
    dist.all_reduce(count)
    dist.all_reduce(total)
    off = rewards - total / count
    squares = off.square().sum(0)
    dist.all_reduce(squares)
    return off / ((squares / (count - bias)).sqrt() + 1e-6)


def gathered(rewards):
    """Another right answer: every rank gathers all rewards."""
    everything = [None] * dist.get_world_size()
    dist.all_gather_object(everything, rewards)
    drawn = torch.cat(everything)
    return (rewards - drawn.mean(0)) / (drawn.std(0) + 1e-6)


def of_its_own(rewards):
    off = rewards - rewards.mean(0)
    return off / (rewards.std(0) + 1e-6)


@pytest.mark.parametrize(
    "answer, said",
    [
        (summed, "✓ The ranks share"),
        (gathered, "✓ The ranks share"),
        (of_its_own, "both belong to the samples of all ranks"),
        (lambda rewards: summed(rewards, bias=0.0), "less one, as torch.std does"),
        (lambda rewards: rewards[0], "should return a tensor of shape (2, 5)"),
        (lambda rewards: None, "should return a tensor of shape (2, 5)"),
        (lambda rewards: summed(rewards) if dist.get_rank() else rewards, "✗"),
    ],
)
def test_shared_advantages(capsys, answer, said):
    assert said in verdict(capsys, checks.shared_advantages, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (52.9, "✓ 53 GB"),
        (123.5, "gathers the whole model"),
        (70.6, "it holds an eighth of the weights already"),
        (26.5, "takes two bytes"),
        (40, "check each factor"),
        (None, "Replace None"),
    ],
)
def test_gigabytes(capsys, answer, said):
    assert said in verdict(capsys, checks.gigabytes, answer)
