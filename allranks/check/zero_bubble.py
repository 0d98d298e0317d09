"""The exercise of the chapter Zero bubble."""

import torch
import torch.distributed as dist

from allranks import launch
from allranks.check import exercise


def _by_hand_on_rank(gradient_of):
    torch.manual_seed(dist.get_rank())
    x, weight = torch.randn(2, 3, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    seed = torch.randn(2, 3, 6)
    expected = torch.autograd.grad(x @ weight.T, (x, weight), seed)
    found = [gradient_of(kind, seed, x.detach(), weight.detach()) for kind in "BW"]
    verdicts = []
    for mine, right in zip(found, expected, strict=True):
        if mine is None or mine.shape != right.shape:
            verdicts.append("nothing" if mine is None else f"shape {tuple(mine.shape)}")
        else:
            verdicts.append("" if torch.allclose(mine, right, atol=1e-5) else "the wrong numbers")
    return verdicts, [tuple(right.shape) for right in expected]


@exercise
def by_hand(answer):
    """`answer(kind, gradient, x, weight)` is B or W of y = x @ weight.T, x with any dims before the last."""
    for verdicts, shapes in launch(_by_hand_on_rank, answer, world_size=2, timeout=20):
        for kind, verdict, shape in zip("BW", verdicts, shapes, strict=True):
            assert not verdict, f'"{kind}" gives {verdict}; the shape should be {shape} here.'
    return "Both equal what autograd computes, and neither needs the other."
