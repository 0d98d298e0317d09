"""The exercises of the chapter DDP in practice."""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from allranks import launch
from allranks.check import exercise
from allranks.model import GPT, digits
from allranks.trace import trace

SECONDS = 20.0
LOSSES = ([1.0] * 2, [2.0] * 8, [6.0] * 5)  # of the examples of each rank


def _ink(model, tokens):
    targets = tokens[:, 1:].flatten()
    each = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), targets, reduction="none")
    return each[targets != 0].sum(), int((targets != 0).sum())


@exercise
def accumulate(answer):
    """`answer(model, microbatches, ink_loss)` leaves the gradient of the mean over all ink, sent once."""
    tokens = digits()[:24]

    def on_rank():
        torch.manual_seed(0)
        model = GPT(layers=1, hidden=16, heads=2)
        wrapped = DistributedDataParallel(model)
        mine = tokens.chunk(dist.get_world_size())[dist.get_rank()]
        with trace() as counted:
            answer(wrapped, mine.split([1, 2, 5]), _ink)
        dist.barrier()
        gradients = [p.grad for p in model.parameters()]
        assert all(g is not None for g in gradients), "some parameters have no gradient after accumulation"
        return torch.cat([g.flatten() for g in gradients]), counted.bytes["all_reduce"]

    torch.manual_seed(0)
    model = GPT(layers=1, hidden=16, heads=2)
    loss, count = _ink(model, tokens)
    (loss / count).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    for rank, (gradient, sent) in enumerate(launch(on_rank, world_size=3, timeout=SECONDS, backend="gloo")):
        factor = gradient.norm() / expected.norm()
        off = (gradient - expected).norm() / expected.norm()
        direction = (gradient / factor - expected).norm() / expected.norm()
        assert off < 1e-4 or direction > 1e-4, (
            f"Rank {rank}'s gradient has the right direction and {factor:.2g} times the right length: DDP "
            "also divides by the number of ranks."
        )
        assert off < 1e-4, (
            f"On 3 ranks with micro-batches of 1, 2 and 5 digits, rank {rank}'s gradient is off by "
            f"{off:.0%}: every pixel of ink has to count the same, wherever it is."
        )
        assert sent < 1.5 * expected.nbytes, (
            f"The gradient is right, but {sent / expected.nbytes:.0f} times their bytes are all-reduced; "
            "once is enough."
        )
    return "The gradient is that of all ink together, and it travels once."


def _mean(losses):
    return math.fsum(x for of_rank in losses for x in of_rank) / sum(map(len, losses))


@exercise
def evaluate(answer):
    """`answer(losses)` returns, on every rank, the mean over the examples of all ranks."""

    def on_rank(losses):
        found = answer(torch.tensor(losses[dist.get_rank()]))
        dist.barrier()
        return float(found)

    of_means = math.fsum(sum(x) / len(x) for x in LOSSES) / len(LOSSES)
    for losses in (LOSSES, (*LOSSES[:-1], [])):
        expected, counts = _mean(losses), [len(of_rank) for of_rank in losses]
        shown = f"On ranks with {counts} examples"
        for rank, found in enumerate(launch(on_rank, losses, world_size=3, timeout=SECONDS, backend="gloo")):
            assert not math.isnan(found), f"{shown}, rank {rank} returns nan: the mean of no examples is 0/0."
            assert losses is not LOSSES or abs(found - of_means) > 1e-4, (
                f"{shown}, rank {rank} returns {found:.2f}, the mean of three means; the mean of all "
                f"examples is {expected:.2f}."
            )
            assert abs(found - expected) < 1e-4, (
                f"{shown}, rank {rank} returns {found:.2f}, not {expected:.2f}: each example counts once."
            )
    return f"{_mean(LOSSES):g} and {expected:g} on every rank, even if a rank has no examples."
