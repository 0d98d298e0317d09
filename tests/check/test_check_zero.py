"""The checks of the chapter ZeRO say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import zero as checks
from allranks.parallel.zero import Zero2, Zero3


def by_all_ranks(slices, max_norm):
    square = sum(s.grad.square().sum() for s in slices)
    dist.all_reduce(square)
    scale = (max_norm / square.sqrt()).clamp(max=1)
    for s in slices:
        s.grad *= scale


def by_each_rank(slices, max_norm):
    torch.nn.utils.clip_grad_norm_(slices, max_norm)


def summed_norms(slices, max_norm):
    norm = sum(s.grad.square().sum() for s in slices).sqrt()
    dist.all_reduce(norm)
    for s in slices:
        s.grad *= (max_norm / norm).clamp(max=1)


@pytest.mark.parametrize(
    "answer, said",
    [
        (by_all_ranks, "✓ Whatever the number of ranks"),
        (by_each_rank, "scaled by different factors"),
        (summed_norms, "✗ With 4 ranks, a gradient of norm"),
        (lambda slices, max_norm: None, "it is unchanged"),
        (None, "✗"),
    ],
)
def test_clip(capsys, answer, said):
    assert said in verdict(capsys, checks.clip, answer)


class Kept(Zero3):
    def after_forward(self):
        pass

    def before_backward(self):
        self.make_gradients()


class GathersAnyway(Zero3):
    def after_forward(self):
        pass


class Careless(Zero3):
    def before_backward(self):
        self.make_gradients()


class NeverFreed(Kept):
    def after_backward(self):
        Zero2.after_backward(self)


@pytest.mark.parametrize(
    "answer, said",
    [
        (Kept, "✓ 3 gathers a step for 3 units"),
        (Zero3, "✗ With 3 units it gathers 6 times a step"),
        (Zero2, "✗ After the step a rank still"),
        (GathersAnyway, "✗ With 3 units it gathers 6 times"),
        (NeverFreed, "✗ After the step a rank still"),
        (Careless, "✗"),
        (None, "✗ Pass the class itself, not an instance."),
    ],
)
def test_keep(capsys, answer, said):
    assert said in verdict(capsys, checks.keep, answer)
