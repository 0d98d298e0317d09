"""The measurement, and all tasks of the lab together."""

import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from allranks import memory
from allranks.check import exercise, labs, measured
from allranks.check.lab_03.common import (
    LR,
    MAX_NORM,
    device_of_rank,
    new_adamw,
    new_batches,
    part_of_rank,
    same_losses,
    train_here,
    trained_serially,
)
from allranks.check.lab_03.in_background import background
from allranks.check.lab_03.numbers import clip, precision
from allranks.check.lab_03.saving import checkpoint, full_state
from allranks.check.lab_03.starting import start
from allranks.check.lab_03.stepping import accumulate, recompute
from allranks.check.lab_03.strategies import strategy
from allranks.check.lab_03.wrapping import held, wrap
from allranks.check.labs import on_ranks
from allranks.model import GPT, Layer, loss_of

POLICIES = "kept", "dropped", "kept, recomputed", "dropped, recomputed"
TASK = "Measure the seconds of a step under each of the four policies, and write three sentences about them."


@exercise
def policies_measured(table, plot, reflection):
    """Seconds of a step by policy: the table, a plot of it, and three sentences."""
    return measured.by_form(
        table, plot, reflection, x="policy", y="step (s)", xs=POLICIES, ratio_to=POLICIES[0], task=TASK
    )


def milestone(
    wrap_,
    held_,
    strategy_,
    policies,
    places,
    clip_,
    full_state_,
    save,
    load,
    peak,
    recompute_,
    accumulate_,
    price,
    start_,
    begin,
    end,
    table,
    plot,
    reflection,
):
    """Try every task, and then all of them together: the running model, stopped on 4 ranks, resumed on 2."""
    batches = new_batches(600, 12, steps=4)

    def running(seed, **options):
        torch.manual_seed(seed)
        model = GPT().to(device_of_rank())
        layers = [sum(p.numel() for p in layer.parameters()) for layer in model.layers]
        rest = sum(p.numel() for p in model.parameters()) - sum(layers)
        budget = memory.zero_bytes(sum(layers) + rest, dist.get_world_size(), 3, "fp32") + 4 * sum(layers)
        wrap_(model, (Layer,), **strategy_(layers, rest, budget, device_of_rank()) | options)
        return model, new_adamw(model)

    def stop(folder):
        model, optimizer = running(0)
        losses = train_here(model, optimizer, batches[:2], clip_)
        bytes_held = tuple(held_(model, optimizer))
        saving = begin(folder, model, optimizer, 2)
        whole = full_state_(model)
        end(saving)
        return losses, bytes_held, whole

    def resume(folder):
        model, optimizer = running(1)
        step = load(folder, model, optimizer)
        return train_here(model, optimizer, batches[step:], clip_)

    def in_micro_batches():
        """A model that starts in shards, recomputes, and sums the gradients of two micro-batches."""
        mesh = init_device_mesh(device_of_rank().type, (dist.get_world_size(),))
        model = start_(GPT, (Layer,), mesh, 0)
        recompute_(model, (Layer,))
        accumulate_(model, part_of_rank(batches[0]), 2)
        return [p.grad.full_tensor().cpu() for p in model.parameters()]

    def in_bf16():
        inner, last = policies(torch.bfloat16, torch.float32)
        model, optimizer = running(0, mp_policy=inner, last={"mp_policy": last})
        return train_here(model, optimizer, batches[:2], clip_)

    def whole():
        torch.manual_seed(0)
        model = GPT()
        Ψ = sum(p.numel() for p in model.parameters())
        expected = trained_serially(model, batches[:2], MAX_NORM)
        halfway = {name: value.clone() for name, value in model.state_dict().items()}
        torch.manual_seed(0)
        expected = trained_serially(GPT(), batches, MAX_NORM)
        with tempfile.TemporaryDirectory() as folder:
            ranks = on_ranks(stop, folder)
            losses = ranks[0][0] + on_ranks(resume, folder, world_size=2)[0]
        assert same_losses(losses, expected), (
            f"Stopped on 4 ranks and resumed on 2, the last loss is {losses[-1]:.5f}; "
            f"one process that never stopped has {expected[-1]:.5f}."
        )
        for rank, (_, bytes_held, _) in enumerate(ranks):
            states = tuple(memory.zero_states(Ψ, 4, 3, "fp32"))
            assert bytes_held == states, f"Rank {rank} holds {bytes_held} bytes; expected {states}."
        for name, value in halfway.items():
            # Adam amplifies the rounding of small gradients
            assert torch.allclose(ranks[0][2][name], value, atol=LR / 20), (
                f"{name} in rank 0's state dict of step 2 differs from that of one process."
            )
        torch.manual_seed(0)
        model = GPT()
        loss_of(model, batches[0]).backward()
        gradients = on_ranks(in_micro_batches, world_size=2)[0]
        for (name, p), gradient in zip(model.named_parameters(), gradients, strict=True):
            assert torch.allclose(gradient, p.grad, rtol=1e-3, atol=1e-5), (
                f"Started in shards, recomputed and accumulated on 2 ranks, the gradient of {name} differs "
                "from that of one process."
            )
        low = on_ranks(in_bf16, world_size=2)[0][-1]
        assert abs(low / expected[1] - 1) < 0.02, (
            f"Computed in bf16, the second loss is {low:.4f}; expected {expected[1]:.4f} to 2 %, as in fp32."
        )
        return (
            f"The loss falls from {expected[0]:.3f} to {losses[-1]:.3f}, as in one process that never "
            f"stopped; each of 4 ranks holds {sum(states):,} bytes, a quarter of {16 * Ψ:,}."
        )

    labs.milestone(
        [
            ("units from the inside out", wrap, wrap_),
            ("memory against DDP, measured", held, held_),
            ("a strategy for a budget", strategy, strategy_),
            ("a precision for each unit", precision, policies, places),
            ("clipping across shards", clip, clip_),
            ("a whole state dict on rank 0", full_state, full_state_),
            ("stop on four ranks, resume on two", checkpoint, save, load),
            ("the peak of a step, and recomputation", recompute, peak, recompute_),
            ("gradients summed before they are sent", accumulate, accumulate_, price),
            ("a start that no rank holds whole", start, start_),
            ("a checkpoint in the background", background, begin, end, load),
            ("memory against seconds, measured", policies_measured, table, plot, reflection),
        ],
        whole,
        "a model that no rank holds whole, trained, saved, and resumed on other ranks.",
    )
