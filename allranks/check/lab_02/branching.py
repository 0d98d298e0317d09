"""The module that tells a right DDP from others: ranks use different parts of it."""

import torch
import torch.nn.functional as F
from torch import nn

from allranks.check.lab_02.common import tokens_of
from allranks.check.labs import drawn


class Branching(nn.Module):
    """Tied, frozen, fp64 and unused weights, buffers that drift, two branches, a gradient of zeros."""

    def __init__(self, drift):
        super().__init__()
        self.never = nn.Linear(6, 2)  # torch's DDP warns where it finds nothing that is unused
        self.token, self.head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.token.weight
        self.wide = nn.Linear(6, 6).double()
        self.branches = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.entered = {}  # the buffers that forward has seen
        self.silent, self.drift = nn.Parameter(torch.ones(2)), drift
        self.register_buffer("centre", torch.randn(6))
        self.register_buffer("scale", 1 + torch.rand(6), persistent=False)

    def forward(self, tokens, branches):
        self.entered = {"centre": self.centre.clone(), "scale": self.scale.clone()}
        x = self.token(tokens) * self.scale - self.centre
        self.centre += self.drift * (1 + x.detach().mean(0))
        x = x + self.wide(x.double()).float()
        for k in branches:
            x = x + self.branches[k](x).tanh()
        return F.cross_entropy(self.head(self.frozen(x)), tokens) + 0 * self.silent.sum()


def new_module(rank, drift=0.1):
    torch.manual_seed(drawn(70 + rank))
    return Branching(drift)


def branches_of(rank, world_size):
    """The branches that `rank` uses in each step."""
    last = world_size - 1
    return [(0,) if rank == 0 else (1,), (0,) if rank == 0 else (), (0, 1), (1,) if rank == last else (), ()]


def loss_of_step(call, module, rank, step, branches):
    tokens = tokens_of(rank, step, 11).to(module.silent.device)
    return call(tokens, branches)


def weights_now(module):
    return {name: t.detach().cpu().clone() for name, t in module.named_parameters()}
