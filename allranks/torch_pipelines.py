"""What does `torch.distributed.pipelining` run, in which order, and how long does it take?

Its schedules are asked for the same step as `allranks.parallel.pipeline.step`, so that both can be compared.
"""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti

from allranks.schedules import Operation
from allranks.sleeping import Sleeper, mean_of

KINDS = {"F": "F", "B": "BW"}  # torch's B is a whole backward


def step(make, parts, count, m, batch, loss_of):
    """Run one step of torch's schedule `make` on this rank; return (loss, gradients, order, listed).

    parts: this rank's modules by virtual stage, of `count`. batch: token ids, (batch, sequence + 1), in `m`
    micro-batches. loss_of(output, targets): the mean of one. loss: the mean of all, 0.0 on ranks without the
    last stage. gradients: of each part's parameters, by stage. order: the `Operation`s that ran, forwards and
    whole backwards. listed: `pipeline_order` of all ranks, as torch prints it.
    """
    batch = batch.to(device := next(next(iter(parts.values())).parameters()).device)
    stages = [PipelineStage(part, n, count, device) for n, part in parts.items()]
    order, losses = [], []
    for stage in stages:
        _record(stage, order)
    many = issubclass(make, PipelineScheduleMulti)
    schedule = make(stages if many else stages[0], m, loss_fn=loss_of)
    given = (batch[:, :-1],) if 0 in parts else ()
    last = {"target": batch[:, 1:], "losses": losses} if count - 1 in parts else {}
    schedule.step(*given, **last)
    dist.barrier()
    gradients = {n: [p.grad for p in part.parameters()] for n, part in parts.items()}
    listed = {rank: [*filter(None, order)] for rank, order in schedule.pipeline_order.items()}
    return sum(each.item() for each in losses) / m, gradients, tuple(order), listed


def _record(stage, order):
    def recording(kind, run):
        def recorded(k, *args, **more):
            order.append(Operation(kind, k, stage.stage_index))
            return run(k, *args, **more)

        return recorded

    stage.forward_one_chunk = recording("F", stage.forward_one_chunk)
    stage.backward_one_chunk = recording("BW", stage.backward_one_chunk)


def operations(listed):
    """Forwards and whole backwards of `step`'s `listed`: a tuple of `Operation`s for each rank."""
    return tuple(
        tuple(
            Operation(KINDS[action.computation_type.value], action.microbatch_index, action.stage_index)
            for action in actions
            if action.computation_type.value in KINDS
        )
        for _, actions in sorted(listed.items())
    )


def sleep(make, chunks, m, naps, repeats=1, device="cpu"):
    """Run torch's schedule `make` with sleeping stages on this rank; return logs like `sleeping.run`.

    Virtual stage n is on rank n mod p. A first step without naps, which is not logged, finds out the shapes.
    """
    rank, size, logs = dist.get_rank(), dist.get_world_size(), []
    sleeper = Sleeper(dict.fromkeys(naps, 0), []).to(device)
    stages = [
        PipelineStage(sleeper, n, size * chunks, torch.device(device))
        for n in range(rank, size * chunks, size)
    ]
    many = issubclass(make, PipelineScheduleMulti)
    schedule = make(stages if many else stages[0], m, loss_fn=mean_of)
    x = torch.ones(m, 1, device=device)
    for repeat in range(repeats + 1):
        sleeper.log = []
        schedule.step(*[x] * (rank == 0), **{"target": x} if rank == size - 1 else {})
        dist.barrier()
        if repeat:
            logs.append(sleeper.log)
        sleeper.naps = {kind: seconds / chunks for kind, seconds in naps.items()}
    return logs
