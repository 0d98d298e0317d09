"""What does one step with split backwards compute, hold and send, for any schedule of a pipeline?

The running model is cut into equal stages; `allranks.parallel.zero_bubble` runs their forwards, B and W.
"""

import functools

import torch
import torch.distributed as dist

from allranks.lowering import lower
from allranks.parallel.combine import Part
from allranks.parallel.pipeline import Mail, step
from allranks.parallel.zero_bubble import PASSES, SplitStage
from allranks.trace import trace


def stages_on_rank(schedule, model, loss_of):
    """This rank's stages of `model` in `schedule`, by number, with their linear layers split.

    loss_of(logits, targets, m): what one of `m` micro-batches adds to the loss.
    """
    last = schedule.stages * schedule.chunks - 1
    share_of_loss = functools.partial(loss_of, m=schedule.microbatches)
    stages = {}
    for n in sorted({n for _, _, n in schedule.orders[dist.get_rank()]}):
        part = Part(model, n, last + 1)
        stages[n] = SplitStage(part, n, share_of_loss if n == last else None)
    return stages


def counting(run, stages, held):
    """The pass `run`, which also notes in `held` how many micro-batches `stages` then hold."""

    def counted(*given):
        loss = run(*given)
        held.append(sum(len(s.kept) + len(s.waiting) for s in stages.values()))
        return loss

    return counted


def train_step(schedule, model, batch, loss_of):
    """Run one step of `schedule` on this rank; return (loss, gradients, held, sent).

    batch: token ids, (batch, sequence + 1). loss: 0.0 on ranks without the last stage. gradients: of each
    stage's parameters, by its number. held: the most micro-batches at once, one of v chunks counts 1/v.
    sent: bytes.
    """
    m, held, shape = schedule.microbatches, [], model.position.weight.shape
    stages = stages_on_rank(schedule, model, loss_of)
    mail = Mail(torch.empty(len(batch) // m, *shape))
    passes = {kind: counting(run, stages, held) for kind, run in PASSES.items()}
    program = lower(schedule).steps[dist.get_rank()]
    data = batch[:, :-1].chunk(m), batch[:, 1:].chunk(m)
    with trace() as counted:
        loss = step(stages, mail, program, *data, passes)
    gradients = {n: [p.grad for p in s.module.parameters()] for n, s in stages.items()}
    return loss.item(), gradients, max(held) / schedule.chunks, counted.sent
