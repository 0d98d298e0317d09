"""All tasks together: the running model, trained in mixed precision on ranks."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from allranks.check import labs
from allranks.check.lab_04.autocast import cross_entropy, forward_backward
from allranks.check.lab_04.clipping import clipped_step
from allranks.check.lab_04.common import (
    BF16,
    FP16,
    FP32,
    LEARNING_RATE,
    MAX_NORM,
    PLANTED,
    STEPS,
    device_of_rank,
    is_about,
    new_gpt,
)
from allranks.check.lab_04.eight_bits import fp8
from allranks.check.lab_04.measuring import measured
from allranks.check.lab_04.memory import bytes_kept
from allranks.check.lab_04.runs import train
from allranks.check.lab_04.scaling import loss_scaler, rank_scaler, unscale
from allranks.check.lab_04.sharding import shard
from allranks.check.labs import on_ranks
from allranks.model import digits, loss_of

TOLERANCE = 0.002  # of a loss, in mixed precision against fp32


SIZES = {"layers": 2, "hidden": 32, "heads": 2}


def _train(model, plain, pieces, batches, dtype, victim):
    """Train on this rank with the reader's functions; in step PLANTED rank `victim` overflows."""
    step_of, loss_function, scaled_step, scaler = pieces
    rank, device, now = dist.get_rank(), device_of_rank(), {}

    def plant(module, args, output):
        if output.requires_grad and now["step"] == PLANTED and rank == victim:
            one = torch.zeros_like(output)
            one[0, 0] = math.inf  # one row of one weight, which lies on one rank
            output.register_hook(lambda gradient: gradient + one)

    plain.token.register_forward_hook(plant)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses, scales = [], []
    for now["step"], tokens in enumerate(batches):
        optimizer.zero_grad()
        part = tokens.chunk(dist.get_world_size())[rank].to(device)
        loss = step_of(model, part, dtype, loss_function, scaler.scale).clone()
        scaled_step(model, optimizer, scaler, MAX_NORM)
        dist.all_reduce(loss)
        losses.append(loss.item() / dist.get_world_size())
        scales.append(float(scaler.scale(torch.ones((), device=device))))
    return losses, scales


def _without_autocast(model, tokens, dtype, loss_function, scale):
    """The step of a model whose units have a dtype: (loss, detached)."""
    loss = loss_function(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    scale(loss).backward()
    return loss.detach()


def _serial(batches):
    """The losses in fp32 in one process, which skips step PLANTED."""
    model = new_gpt(SIZES)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for step, tokens in enumerate(batches):
        loss = loss_of(model, tokens)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        if step != PLANTED:
            optimizer.step()
        losses.append(loss.item())
    return losses


def milestone(
    step_of,
    loss_function,
    unscaled,
    scaler,
    scaled_step,
    shared_scaler,
    sharded,
    kept,
    run,
    delayed_scale,
    product,
    table,
    plot,
    reflection,
):
    """Try every task, and then train the running model with all of them, on ranks, against fp32."""
    choose = torch.Generator().manual_seed(4)
    batches = [digits()[torch.randint(1797, (12,), generator=choose)] for _ in range(STEPS)]
    runs = {
        "DDP in bf16": (DistributedDataParallel, BF16),
        "DDP in fp16": (DistributedDataParallel, FP16),
        "FSDP2 in fp16": (lambda model: sharded(model, FP16, FP32), FP16),
    }

    def on_rank(victim):
        results = {}
        for name, (wrap, dtype) in runs.items():
            plain = new_gpt(SIZES).to(device_of_rank())
            step = _without_autocast if name.startswith("FSDP2") else step_of
            pieces = step, loss_function, scaled_step, shared_scaler(2.0**10)
            results[name] = _train(wrap(plain), plain, pieces, batches, dtype, victim)
            dist.barrier()
        return results

    def whole():
        expected = _serial(batches)
        scales = [2.0**10 if step < PLANTED else 2.0**9 for step in range(STEPS)]
        for world_size, victim in ((2, 1), (4, 2)):
            for rank, results in enumerate(on_ranks(on_rank, victim, world_size=world_size)):
                for name, (losses, scales_here) in results.items():
                    who = f"{name}, rank {rank} of {world_size}"
                    assert scales_here == scales, (
                        f"{who}: rank {victim} overflows in step {PLANTED}, and the scales after the "
                        f"steps are {', '.join(f'{s:g}' for s in scales_here)}; expected "
                        f"{', '.join(f'{s:g}' for s in scales)}."
                    )
                    for step, (loss, right) in enumerate(zip(losses, expected, strict=True)):
                        assert is_about(loss, right, TOLERANCE), (
                            f"{who}: the loss of step {step} is {loss:.3f}; expected {right:.3f} to 0.2 %, "
                            "as in fp32."
                        )
        return (
            f"{STEPS} steps on 2 and 4 ranks, with {', '.join(runs)}: losses are within "
            f"{100 * TOLERANCE:.1f} % of fp32 at every step; all ranks skip the step in which one overflows."
        )

    labs.milestone(
        [
            ("where autocast begins and ends", forward_backward, step_of),
            ("a loss that adds up in fp32", cross_entropy, loss_function),
            ("gradients without the scale", unscale, unscaled),
            ("the decisions of GradScaler", loss_scaler, scaler),
            ("clipped at the right norm", clipped_step, scaled_step),
            ("one decision on all ranks", rank_scaler, shared_scaler),
            ("shards in fp32, messages in 16 bits", shard, sharded),
            ("the bytes that 16 bits save", bytes_kept, kept),
            ("one run in three precisions", train, run),
            ("eight bits, a scale for each tensor", fp8, delayed_scale, product),
            ("a measurement", measured, table, plot, reflection),
        ],
        whole,
        "a run in mixed precision that follows fp32 and survives an overflow on one rank.",
    )
