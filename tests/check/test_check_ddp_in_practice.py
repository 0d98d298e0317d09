"""The checks of DDP in practice say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import ddp_in_practice as checks


def ink_of_all(microbatches):
    ink = torch.tensor(sum(int((t[:, 1:] != 0).sum()) for t in microbatches))
    dist.all_reduce(ink)
    return ink.item()


def right(model, microbatches, ink_loss, scale=None):
    scale = (scale or dist.get_world_size()) / ink_of_all(microbatches)
    with model.no_sync():
        for tokens in microbatches[:-1]:
            (ink_loss(model, tokens)[0] * scale).backward()
    (ink_loss(model, microbatches[-1])[0] * scale).backward()


def not_times_the_ranks(model, microbatches, ink_loss):
    right(model, microbatches, ink_loss, scale=1)


def loud(model, microbatches, ink_loss):
    ink = ink_of_all(microbatches)
    for tokens in microbatches:
        (ink_loss(model, tokens)[0] * dist.get_world_size() / ink).backward()


def mean_of_means(model, microbatches, ink_loss):
    for tokens in microbatches:
        loss, count = ink_loss(model, tokens)
        (loss / count / len(microbatches)).backward()


@pytest.mark.parametrize(
    "answer, said",
    [
        (right, "✓ The gradient is that of all ink"),
        (not_times_the_ranks, "DDP also divides by the number of ranks"),
        (loud, "✗ The gradient is right, but 3 times"),
        (mean_of_means, "ranks with micro-batches of 1, 2 and"),
        (lambda model, microbatches, ink_loss: None, "some parameters have no gradient"),
        (None, "✗"),
    ],
)
def test_accumulate(capsys, answer, said):
    assert said in verdict(capsys, checks.accumulate, answer)


def summed(losses):
    both = torch.stack([losses.sum(), torch.tensor(float(len(losses)))])
    dist.all_reduce(both)
    return both[0] / both[1]


def of_means(losses):
    mean = losses.mean()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def weighted(losses):  # right unless a rank has no example
    both = torch.stack([losses.mean() * len(losses), torch.tensor(float(len(losses)))])
    dist.all_reduce(both)
    return both[0] / both[1]


@pytest.mark.parametrize(
    "answer, said",
    [
        (summed, "✓ 3.2 and 1.8"),
        (of_means, "✗ On ranks with [2, 8, 5] examples, rank 0 returns 3.00, the mean of three means"),
        (weighted, "✗ On ranks with [2, 8, 0] examples, rank 0 returns nan"),
        (lambda losses: losses.sum(), "each example counts once"),
        (lambda losses: None, "✗"),
        (None, "✗"),
    ],
)
def test_evaluate(capsys, answer, said):
    assert said in verdict(capsys, checks.evaluate, answer)
