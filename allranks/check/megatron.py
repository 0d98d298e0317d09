"""The exercises of the chapter Megatron."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from allranks import collectives, launch
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.trace import trace
from allranks.transformer import PRESETS

SECONDS = 20.0
TOKENS, HIDDEN, INNER = 5, 8, 32  # of the gated MLP


def _gated_mlp(x, gate, up, down):
    return down(F.silu(gate(x)) * up(x))


def _weights():
    torch.manual_seed(0)
    gate, up = nn.Linear(HIDDEN, INNER), nn.Linear(HIDDEN, INNER)
    return torch.randn(TOKENS, HIDDEN), gate, up, nn.Linear(INNER, HIDDEN)


def _run(mlp):
    x, *linears = _weights()
    x.requires_grad_()
    y = mlp(x, *linears)
    y.pow(2).sum().backward()
    return y.detach(), x.grad


@exercise
def gated(answer):
    """`answer(x, gate, up, down)` is the gated MLP on slices of the layers, with one all-reduce each way."""

    def on_rank():
        x, *linears = _weights()
        x.requires_grad_()
        with trace() as forward:
            y = answer(x, *linears)
        with trace() as backward:
            y.pow(2).sum().backward()
        dist.barrier()
        return y.detach(), x.grad, forward.calls, backward.calls

    expected = _run(_gated_mlp)
    for rank, (y, gradient, forward, backward) in enumerate(launch(on_rank, world_size=4, timeout=SECONDS)):
        assert y.shape == expected[0].shape, (
            f"Rank {rank} returns shape {tuple(y.shape)}; expected {tuple(expected[0].shape)}."
        )
        assert torch.allclose(y, expected[0], atol=1e-5), f"Rank {rank}'s output differs from one process's."
        assert torch.allclose(gradient, expected[1], rtol=1e-4, atol=1e-5), (
            f"The output is right, but rank {rank}'s gradient of x is not: each rank uses x in its own "
            "way, so the gradients have to be summed once."
        )
        for name, calls in (("forward", forward), ("backward", backward)):
            assert calls.total() == 1, (
                f"The numbers are right, but the {name} pass takes {calls.total()} collectives; one is "
                "enough. What do the two matrices that read x have in common?"
            )
    return "Output and gradient equal one process's, with one all-reduce forward and one backward."


@exercise
def megabytes_sent(answer):
    """`answer`: megabytes (1e6) that each of 8 ranks sends for a layer of GPT-3 and one sequence, in bf16."""
    model = PRESETS["gpt3-175b"]
    expected = 4 * collectives.ring_all_reduce_bytes(2 * model.sequence * model.hidden, 8) / 1e6
    is_number(answer)
    for factor, hint in (
        (1 / 2, "That is the number of elements, or forward alone; an element has two bytes."),
        (8 / 7, "That leaves out (t−1)/t."),
        (model.layers, "That is the whole model; the question is about one layer."),
    ):
        assert abs(answer / (expected * factor) - 1) > 0.01, hint
    assert abs(answer / expected - 1) <= 0.01, (
        f"{answer:g} MB is not right: how many all-reduces does a layer need, and how large is each?"
    )
    return f"{expected:.0f} MB, from each rank, for each layer and sequence."
