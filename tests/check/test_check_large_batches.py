"""The checks of the chapter on large batches say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import large_batches as checks


def noise_scale(gradients, size, less=1, times=True, without=True):
    n, mean = len(gradients), sum(gradients) / len(gradients)
    noise = sum((g - mean).square().sum() for g in gradients) / (n - less)
    noise = noise * size if times else noise
    return noise / (mean.square().sum() - (noise / (n * size) if without else 0))


@pytest.mark.parametrize(
    "answer, said",
    [
        (noise_scale, "✓ This is the noise scale of a step"),
        (lambda g, b: noise_scale(g, b, 0, False, False), "still the function given in the exercise"),
        (lambda g, b: noise_scale(g, b, without=False), "still contains noise"),
        (lambda g, b: noise_scale(g, b) / b, "examples; one example is noisier"),
        (lambda g, b: noise_scale(g, b) * (len(g) - 1) / len(g), "the number of samples minus one"),
        (lambda g, b: 1.0, "✗ With 8 gradients of 4 examples, 32 in all"),
        (lambda g, b: None, "✗"),
        (None, "✗"),
    ],
)
def test_noise_scale(capsys, answer, said):
    assert said in verdict(capsys, checks.noise_scale, answer)


def lars(weights, gradients, rate):
    squares = torch.stack([t.square().sum() for t in [*weights, *gradients]])
    dist.all_reduce(squares)
    w, g = squares.sqrt().chunk(2)
    return [rate * w[k] / g[k] * gradients[k] for k in range(len(weights))]


def of_pieces(weights, gradients, rate):
    return [rate * w.norm() / g.norm() * g for w, g in zip(weights, gradients)]


def roots_first(weights, gradients, rate):
    lengths = torch.stack([t.norm() for t in [*weights, *gradients]])
    dist.all_reduce(lengths)
    w, g = lengths.chunk(2)
    return [rate * w[k] / g[k] * gradients[k] for k in range(len(weights))]


def two_calls(weights, gradients, rate):
    w, g = (torch.stack([t.square().sum() for t in part]) for part in (weights, gradients))
    dist.all_reduce(w)
    dist.all_reduce(g)
    return [rate * (w[k] / g[k]).sqrt() * gradients[k] for k in range(len(weights))]


def whole_tensors(weights, gradients, rate):
    """Right, and sends everything: each rank's pieces, at their place among zeros."""
    sizes = torch.zeros(4, 2 * len(weights), dtype=torch.long)
    sizes[dist.get_rank()] = torch.tensor([t.numel() for t in [*weights, *gradients]])
    padded = torch.zeros(2 * len(weights), 4, 200)
    for k, t in enumerate([*weights, *gradients]):
        padded[k, dist.get_rank(), : t.numel()] = t
    dist.all_reduce(padded)
    w, g = padded.flatten(1).norm(dim=1).chunk(2)
    return [rate * w[k] / g[k] * gradients[k] for k in range(len(weights))]


@pytest.mark.parametrize(
    "answer, said",
    [
        (lars, "✓ Pieces give the norms of whole tensors, with one call of 24 bytes."),
        (of_pieces, "✗ The steps of tensor"),
        (roots_first, "squares add up over ranks, norms do not"),
        (two_calls, "took 2 collectives; one is enough"),
        (whole_tensors, "24 are enough"),
        (lambda weights, gradients, rate: weights[:0], "✗"),
        (None, "✗"),
    ],
)
def test_lars_steps(capsys, answer, said):
    assert said in verdict(capsys, checks.lars_steps, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (100, "✓ 100 ranks"),
        (400, "twice the fewest"),
        (500, "That is the batch"),
        (125, "Almost"),
        (200, "✗ With 200 ranks the run consumes 50% more"),
        (0, "✗"),
        (None, "None"),
    ],
)
def test_ranks(capsys, answer, said):
    assert said in verdict(capsys, checks.ranks, answer)
