"""The exercises of the chapter Averaging gradients."""

import torch
import torch.distributed as dist

from allranks import collectives, launch
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.model import GPT, digits, loss_of

SECONDS = 20.0
SHARES = (26, 2, 2, 2)  # pictures of each rank, where batches are unequal
GPT_3 = 175e9  # parameters


def _model():
    torch.manual_seed(0)
    return GPT(layers=1, hidden=16, heads=2)


def _gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def _of_one_process(tokens):
    model = _model()
    loss_of(model, tokens).backward()
    return _gradients(model)


def _is_close(gradient, expected):
    return torch.allclose(gradient, expected, rtol=1e-4, atol=1e-6)


@exercise
def weighted_average(answer):
    """`answer(model, count)` averages gradients over ranks with different numbers of pictures."""
    tokens = digits()[: sum(SHARES)]

    def on_rank():
        model = _model()
        mine = tokens.split(SHARES)[dist.get_rank()]
        loss_of(model, mine).backward()
        answer(model, len(mine))
        return _gradients(model)

    expected = _of_one_process(tokens)
    for rank, gradient in enumerate(launch(on_rank, world_size=len(SHARES), timeout=SECONDS)):
        off = (gradient - expected).norm() / expected.norm()
        assert _is_close(gradient, expected), (
            f"With batches of {', '.join(map(str, SHARES))}, rank {rank}'s gradient is off by {off:.0%}: "
            "every picture has to count the same, whichever rank it is on."
        )
    return f"Batches of {', '.join(map(str, SHARES))} give the gradient of all {sum(SHARES)} together."


@exercise
def hook(answer):
    """`answer(model)` makes each parameter's gradient the mean over ranks as soon as backward has made it."""
    tokens = digits()[:32]

    def on_rank():
        model = _model()
        answer(model)
        loss_of(model, tokens.chunk(dist.get_world_size())[dist.get_rank()]).backward()
        return _gradients(model)

    expected = _of_one_process(tokens)
    for rank, gradient in enumerate(launch(on_rank, world_size=4, timeout=SECONDS)):
        off = (gradient - expected).norm() / expected.norm()
        assert _is_close(gradient, expected), (
            f"After backward, rank {rank}'s gradient is off by {off:.0%} from that of the whole batch. "
            "What exactly does the hook average?"
        )
    return "After backward, every rank holds the gradient of the whole batch."


@exercise
def gigabytes_sent(answer):
    """`answer`: gigabytes (1e9 bytes) that each of 1024 ranks sends a step, for GPT-3 in 2 bytes."""
    expected = collectives.ring_all_reduce_bytes(2 * GPT_3, 1024) / 1e9
    is_number(answer)
    assert abs(answer / (expected / 2) - 1) > 0.01, (
        "That is once around the ring; an all-reduce goes around twice."
    )
    assert abs(answer / (expected * 2) - 1) > 0.01, "That is for gradients of 4 bytes; here they have 2."
    assert abs(answer / expected - 1) <= 0.01, (
        f"{answer:g} GB is not right: which share of all gradients does a rank send, and how often?"
    )
    return f"{expected:.0f} GB, from each rank, at each step."
