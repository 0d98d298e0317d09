"""Which ranks work together along which axis? A mesh of data, pipeline and tensor parallelism.

Ranks are numbered with the last axis varying fastest, as in torch's `DeviceMesh`. A rank is in one group for
each axis, and the code of an axis (`allranks.parallel.tensor`, `allranks.parallel.pipeline`) is told its
group and nothing else (Narayanan et al. 2021, section 3).
"""

import functools
import math

import torch
import torch.distributed as dist
from torch import nn

from allranks.parallel import tensor
from allranks.parallel.pipeline import Mail, Stage, step
from allranks.parallel.tensor import cut_parameters, total


def groups_of(sizes):
    """Return this rank's group along each axis of `sizes`, a dict from axis to size, slowest axis first.

    All ranks of the world make all groups, in the same order, as `torch.distributed.new_group` demands.
    """
    ranks = torch.arange(math.prod(sizes.values())).view(*sizes.values())
    mine = {}
    for dim, axis in enumerate(sizes):
        for members in ranks.movedim(dim, -1).reshape(-1, sizes[axis]).tolist():
            group = dist.new_group(members)
            if dist.get_rank() in members:
                mine[axis] = group
    return mine


class Part(nn.Module):
    """Stage `place` of `stages` of the running model, cut by `parallelize` or not, with equally many layers.

    The first stage takes tokens, (batch, sequence), the last one returns logits, and between them go hidden
    states, (batch, sequence, hidden). ValueError if the stages cannot share the layers evenly.
    """

    def __init__(self, model, place, stages):
        super().__init__()
        if len(model.layers) % stages:
            raise ValueError(f"{stages} stages cannot share {len(model.layers)} layers evenly")
        self.first, self.last = place == 0, place == stages - 1
        share = len(model.layers) // stages
        self.layers = model.layers[share * place : share * (place + 1)]
        if self.first:
            self.token, self.position = model.token, model.position
        if self.last:
            self.norm, self.head = model.norm, model.head

    def forward(self, x):
        if self.first:
            places = torch.arange(x.shape[1], device=x.device)
            x = self.token(x) + self.position(places)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)) if self.last else x


def build(model, groups, program, sequences, microbatches):
    """Return (pipe, part): this rank's `Part` of the running model, and what runs it through the pipeline.

    groups: this rank's, along "dp", "pp" and "tp". program: the exchanges of every stage of the pp group, as
    `allranks.lowering.lower` gives them in `steps`. sequences: of the whole batch; a replica takes an equal
    part of them, in so many equal micro-batches. `pipe(inputs, targets)`, lists of micro-batches of tokens,
    leaves in the part the gradients of the replica's mean loss, and returns that loss, or 0 before the last
    stage.
    """
    tp, pp, dp = (groups[axis] for axis in ("tp", "pp", "dp"))
    place, last = dist.get_rank(pp), pp.size() - 1
    positions, hidden = model.position.weight.shape
    part = Part(tensor.parallelize(model, tp), place, pp.size())

    def share_of_loss(logits, targets):
        logits, targets = logits.flatten(0, 1), targets.flatten()
        return tensor.parallel_cross_entropy(logits, targets, tp) / microbatches

    stage = Stage(part, place, share_of_loss if place == last else None)
    b = sequences // dp.size() // microbatches
    device = next(part.parameters()).device
    mail = Mail(torch.empty(b, positions, hidden, device=device), pp)
    return functools.partial(step, {place: stage}, mail, program[place]), part


def gradient_norm(part, groups):
    """Return the norm of the whole model's gradient, on every rank, once the dp ranks have averaged theirs.

    A tensor of no dims. What t ranks have copies of counts 1/t on each of them.
    """
    cut, t = cut_parameters(part), dist.get_world_size(groups["tp"])
    squares = sum(p.grad.pow(2).sum() / (1 if p in cut else t) for p in part.parameters())
    return total(total(squares, groups["tp"]), groups["pp"]).sqrt()
