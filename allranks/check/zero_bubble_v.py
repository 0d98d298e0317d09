"""The exercises of the chapter The V."""

import re

import torch
import torch.distributed as dist
from torch import nn

from allranks import launch, schedules
from allranks.check import exercise
from allranks.check.stubs import is_returned
from allranks.lowering import lower
from allranks.parallel.pipeline import Mail, step
from allranks.parallel.zero_bubble import PASSES, SplitStage
from allranks.simulate import simulate

STAGES, MICROBATCHES, ROOM = 3, 4, 2
SEARCHED, LEAST = 7, 5  # what `schedules.zero_bubble` idles with this room, and what no order can beat
WIDTH = 5


def _layers():
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(STAGES)]


def _data():
    torch.manual_seed(1)
    return torch.randn(2, MICROBATCHES, WIDTH)


def _share_of_loss(y, target):
    return nn.functional.mse_loss(y, target) / MICROBATCHES


def _gradients_on_rank(program):
    rank, (x, target) = dist.get_rank(), _data()
    stage = SplitStage(_layers()[rank], rank, _share_of_loss if rank == STAGES - 1 else None)
    data = x.requires_grad_().split(1), target.split(1)
    step({rank: stage}, Mail(torch.empty(1, WIDTH)), program.steps[rank], *data, PASSES)
    return [p.grad for p in stage.module.parameters()]


def _trains(schedule):
    """Whether three ranks that run `schedule` get the gradients of one process."""
    model, (x, target) = nn.Sequential(*_layers()), _data()
    nn.functional.mse_loss(model(x), target).backward()
    results = launch(_gradients_on_rank, lower(schedule), world_size=STAGES, timeout=20)
    gradients = (each for result in results for each in result)
    pairs = zip(gradients, model.parameters(), strict=True)
    return all(torch.allclose(mine, p.grad, atol=1e-6) for mine, p in pairs)


def _schedule(rows):
    assert len(rows) == STAGES, f"There are {len(rows)} rows; expected {STAGES}, one for each rank."
    orders = []
    for rank, row in enumerate(rows):
        words = [re.fullmatch(r"(F|B|W|BW)(\d+)", word) for word in row.split()]
        assert all(words), f"Rank {rank}: write F0, B0, W0 or BW0, with the number of the micro-batch."
        orders.append(tuple(schedules.Operation(word[1], int(word[2]), rank) for word in words))
    return schedules.Schedule("yours", STAGES, MICROBATCHES, 1, tuple(orders))


@exercise
def puzzle(answer):
    """`answer`: a string of F0, B0, W0 … for each of 3 ranks; 4 micro-batches, at most 2 on a rank."""
    made = _schedule(answer)
    try:
        schedules.check(made)
    except ValueError as wrong:
        raise AssertionError(f"The schedule is not legal: {wrong}.") from None
    timeline = simulate(made)
    for rank, held in enumerate(timeline.peak_activations):
        assert held <= ROOM, f"Rank {rank} holds {held:g} micro-batches at once; it has room for {ROOM}."
    idle = round(max(timeline.spans) - timeline.ideal)
    assert idle <= SEARCHED, (
        f"The schedule is legal, and its bubble is {idle}. The first target is {SEARCHED}."
    )
    assert _trains(made), "The schedule is legal, but on three ranks the gradients differ from one process's."
    if idle > LEAST:
        return f"A bubble of {idle}, and three ranks train with it. The second target is {LEAST}."
    return f"A bubble of {idle}, and three ranks train with it. No order has a smaller one."


@exercise
def dualpipe(answer):
    """`answer(p, T_F, T_B, T_W)` is the bubble of DualPipe, T_B the input gradient, F&B all together."""
    for p, forward, input_grad, weight_grad in ((2, 1, 1, 1), (8, 1, 1, 1), (16, 4, 5, 3), (4, 2, 2.5, 0.5)):
        given = f"dualpipe({p}, {forward}, {input_grad}, {weight_grad})"
        found = answer(p, forward, input_grad, weight_grad)
        is_returned(found)
        times = {"forward": forward, "input_grad": input_grad, "weight_grad": weight_grad}
        expected = schedules.bubble_seconds("dualpipe", p, **times)
        mixed = (p / 2 - 1) * (forward + input_grad + weight_grad + input_grad - 3 * weight_grad)
        assert p == 2 or abs(found - mixed) > 1e-9, (
            f"{given} took one paper's B for the other's: does B include W?"
        )
        assert abs(found - expected) < 1e-9, f"{given} should be {expected:g}, not {found:g}."
    return "(p/2 - 1)(T_F + 2T_B - T_W)."
