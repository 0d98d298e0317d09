"""The exercises of the chapter Loss scaling."""

import itertools
import random

import torch
import torch.distributed as dist

from allranks import launch
from allranks.check import exercise
from allranks.check.stubs import is_returned
from allranks.trace import trace

SECONDS = 20.0


def _grad_scaler(steps, interval):
    """Yield (scale, good steps) of torch's scaler before each of `steps`, booleans, and after the last."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=interval)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight])
    for finite in steps:
        scaler.scale(weight.sum() * (1.0 if finite else torch.inf)).backward()
        state = scaler.state_dict()
        yield state["scale"], state["_growth_tracker"]
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    state = scaler.state_dict()
    yield state["scale"], state["_growth_tracker"]


@exercise
def decide(answer):
    """`answer(scale, good_steps, finite, growth_interval)`: the next (scale, good_steps), as `GradScaler`."""
    luck = random.Random(0)
    steps = [luck.random() < 0.85 for _ in range(60)]
    for interval in (1, 4):
        states = list(_grad_scaler(steps, interval))
        for (before, after), finite in zip(itertools.pairwise(states), steps, strict=True):
            got = answer(*before, finite, interval)
            is_returned(got)
            assert tuple(got) == after, (
                f"With scale {before[0]:g}, {before[1]} good steps and an interval of {interval}, a step "
                f"{'without' if finite else 'with'} infinities takes GradScaler to scale {after[0]:g} and "
                f"{after[1]} good steps; yours goes to {got[0]:g} and {got[1]}."
            )
    return "Scale and count are GradScaler's after each of 60 steps."


@exercise
def agreed(answer):
    """`answer(finite)` is True on all ranks if it was called with True on all, else False on all."""
    cases = ((True,) * 4, (True, True, False, True), (False, True, True, False), (False,) * 4)

    def on_rank():
        answers = []
        for opinions in cases:
            answers.append(answer(opinions[dist.get_rank()]))
            dist.barrier()
        return answers

    for rank, answers in enumerate(launch(on_rank, world_size=4, timeout=SECONDS)):
        for opinions, got in zip(cases, answers, strict=True):
            is_returned(got)
            assert bool(got) == all(opinions), (
                f"When four ranks say {', '.join(map(str, opinions))}, rank {rank} decides {got}; all "
                "must be finite to step."
            )
    return "All ranks decide alike, even those that already knew."


@exercise
def average(answer):
    """`answer(t)` averages an fp16 tensor over ranks, in place: no overflow, little lost, 2 bytes sent."""

    def on_rank():
        results = []
        for value in (20000.0, 2.0**-21):
            t = torch.full((8,), value, dtype=torch.float16)
            with trace() as counted:
                answer(t)
            results.append((value, t, sum(counted.bytes.values())))
        return results

    for world_size in (4, 16):
        results = launch(on_rank, world_size=world_size, timeout=SECONDS)
        for rank, on_this in enumerate(results):
            for value, t, nbytes in on_this:
                assert t.dtype == torch.float16, (
                    f"The tensor has become {str(t.dtype)[6:]}; expected float16."
                )
                assert nbytes, "The ranks did not communicate."
                assert nbytes <= 16, f"Sending 8 elements took {nbytes} bytes; in fp16 they have 16."
                got = t[0].item()
                assert abs(got / value - 1) < 0.01, (
                    f"With {value:.3g} on each of {world_size} ranks, rank {rank} computes {got:.3g} as the "
                    "mean."
                )
    return "Neither 20000 nor 2⁻²¹ is lost, on 4 ranks and on 16."
