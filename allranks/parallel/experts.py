"""How do ranks share a layer of experts? Each holds some of them; tokens travel there, and back.

The ranks of `group`, of all ranks without one, have equal numbers of experts, and tokens of their own. An
all-to-all carries tokens to their experts and another brings the outputs back: in buffers of a fixed capacity
(Lepikhin et al. 2021, sections 2.2 and 3.1), without a synchronisation with the host, or as many as there
are, which the host has to know.
"""

import math
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def choose(scores, k=2, bias=0):
    """The k experts of each token, the best first, and their weights, which add up to 1: both (tokens, k).

    scores: of each expert, (tokens, experts). bias: is added for the choice, and not for the weights.
    """
    chosen = (scores + bias).topk(k).indices
    weights = scores.gather(1, chosen)
    return weights / weights.sum(1, keepdim=True), chosen


def places(chosen, experts):
    """How many choices of the same expert go before each one: all first choices, then all second ones."""
    order = chosen.T.flatten()
    wanted = F.one_hot(order, experts)
    before = wanted.cumsum(0) - wanted
    return before.gather(1, order[:, None]).view(chosen.T.shape).T


def balance_loss(scores, chosen):
    """Experts · Σ (share of the first choices) · (mean score): 1 if all are alike, a number with gradients.

    Fedus et al. 2022, section 2.2; Lepikhin et al. 2021, algorithm 1, divide by the square of the experts.
    """
    experts = scores.shape[1]
    share = F.one_hot(chosen[:, 0], experts).float().mean(0)
    return experts * (share * scores.mean(0)).sum()


def through_buffers(x, chosen, capacity, number, experts):
    """What the chosen of `number` experts make of each token, (tokens, k, hidden); of those dropped, 0.

    experts: maps (number, capacity, hidden) to the same shape. No shape depends on what was chosen, so
    nothing waits for the host to learn it.
    """
    place, spare = places(chosen, number), number * capacity  # one row more: for those dropped
    row = torch.where(place < capacity, chosen * capacity + place, spare)
    visits = x.repeat_interleave(chosen.shape[1], dim=0)
    rows = x.new_zeros(spare + 1, x.shape[1]).index_copy(0, row.flatten(), visits)
    done = experts(rows[:-1].unflatten(0, (number, capacity))).flatten(0, 1)
    return F.pad(done, (0, 0, 0, 1))[row]


class Experts(nn.Module):
    """MLPs side by side, each for its own tokens: (experts, tokens, hidden) to the same shape."""

    def __init__(self, experts, hidden, inner):
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, hidden, inner) / hidden**0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, hidden) / inner**0.5)

    def forward(self, x):
        return F.gelu(x @ self.up) @ self.down


class Mixture(nn.Module):
    """A gate and its experts, in one process: (…, hidden) to the same shape.

    A call leaves the auxiliary loss in `balance`, and in `load` how many choices fell on each expert.
    """

    def __init__(self, hidden, inner, experts, k=2, factor=1.25):
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.experts = Experts(experts, hidden, inner)
        self.k, self.factor = k, factor
        self.register_buffer("bias", torch.zeros(experts))

    def visit(self, x, chosen):
        number = self.gate.out_features
        capacity = math.ceil(chosen.numel() * self.factor / number)
        return through_buffers(x, chosen, capacity, number, self.experts)

    def forward(self, x):
        tokens = x.flatten(0, -2)
        scores = self.gate(tokens).softmax(-1)
        weights, chosen = choose(scores, self.k, self.bias)
        self.balance = balance_loss(scores, chosen)
        self.load = F.one_hot(chosen, len(self.bias)).sum((0, 1))
        y = (weights[..., None] * self.visit(tokens, chosen)).sum(1)
        return y.view(x.shape)


def exchange(x, sent=None, received=None, group=None):
    """Rows of `x` to every rank, in their order, and from every rank: equally many, or `sent`, `received`.

    x: (rows, …), those for rank 0 first. sent, received: how many rows, a list with a number for each rank.
    What came is (rows, …), those from rank 0 first.
    """
    rows = len(x) if received is None else sum(received)
    out = x.new_empty(rows, *x.shape[1:])
    dist.all_to_all_single(out, x.contiguous(), received, sent, group=group)
    return out


class AllToAll(torch.autograd.Function):
    """`exchange`, whose gradients go back the way the rows came."""

    @staticmethod
    def forward(ctx, x, sent, received, group):
        ctx.way = received, sent, group
        return exchange(x, sent, received, group)

    @staticmethod
    def backward(ctx, gradient):
        return exchange(gradient, *ctx.way), None, None, None


def on_ranks(buffers, experts, group=None):
    """What all experts make of this rank's buffers, (all experts, capacity, hidden); `experts`: its own."""
    ranks = dist.get_world_size(group)
    arrived = AllToAll.apply(buffers, None, None, group).unflatten(0, (ranks, -1))
    done = experts(arrived.transpose(0, 1).flatten(1, 2))
    back = done.unflatten(1, (ranks, -1)).transpose(0, 1).flatten(0, 1)
    return AllToAll.apply(back, None, None, group)


def my_experts(whole, group=None):
    """This rank's equal part of the `Experts`; ValueError if there is none."""
    ranks, number = dist.get_world_size(group), len(whole.up)
    if number % ranks:
        raise ValueError(f"{ranks} ranks cannot share {number} experts evenly")
    mine = Experts(0, 1, 1)
    for name, p in whole.named_parameters():
        part = p.detach().chunk(ranks)[dist.get_rank(group)]
        setattr(mine, name, nn.Parameter(part.clone()))
    return mine


class ExpertParallel(Mixture):
    """A `Mixture` whose experts are spread over ranks; each routes its own tokens, in buffers."""

    def __init__(self, mixture, group=None):
        nn.Module.__init__(self)
        self.gate, self.k, self.factor = mixture.gate, mixture.k, mixture.factor
        self.register_buffer("bias", mixture.bias)
        self.experts, self.group = my_experts(mixture.experts, group), group

    def visit(self, x, chosen):
        number = self.gate.out_features
        capacity = math.ceil(chosen.numel() * self.factor / number)
        there = partial(on_ranks, experts=self.experts, group=self.group)
        return through_buffers(x, chosen, capacity, number, there)


def ragged(experts, x, counts):
    """Rows of `x`, `counts` for each of the `Experts`, through theirs: (rows, hidden) to the same shape."""
    parts = zip(x.split(counts), experts.up, experts.down, strict=True)
    return torch.cat([F.gelu(rows @ up) @ down for rows, up, down in parts])


class Dropless(ExpertParallel):
    """An `ExpertParallel` that sends the tokens there are: none is dropped, and nothing is padded."""

    def visit(self, x, chosen):
        number, ranks = self.gate.out_features, dist.get_world_size(self.group)
        order = chosen.flatten().argsort(stable=True)
        mine = torch.bincount(chosen.flatten(), minlength=number)
        theirs = exchange(mine, group=self.group).view(ranks, -1)
        sent = mine.view(ranks, -1).sum(1).tolist()
        received = theirs.sum(1).tolist()
        arrived = AllToAll.apply(x[order // self.k], sent, received, self.group)
        local = torch.arange(number // ranks, device=x.device).repeat(ranks)
        by_expert = local.repeat_interleave(theirs.flatten()).argsort(stable=True)
        done = ragged(self.experts, arrived[by_expert], theirs.sum(0).tolist())
        back = done[by_expert.argsort()]
        back = AllToAll.apply(back, received, sent, self.group)
        return back[order.argsort()].view(*chosen.shape, -1)


def average_gradients(model, group=None):
    """Make gradients of each rank's mean loss those of the mean over ranks.

    Experts have seen the tokens of all ranks and are divided; all other parameters are averaged.
    """
    experts = [m for m in model.modules() if isinstance(m, Experts)]
    mine = {p for each in experts for p in each.parameters()}
    for p in model.parameters():
        if p in mine:
            p.grad /= dist.get_world_size(group)
        else:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=group)


class MixtureLayer(nn.Module):
    """A `Layer` of the running model with a mixture in the place of its MLP."""

    def __init__(self, layer, mixture):
        super().__init__()
        self.heads, self.mixture = layer.heads, mixture
        self.norm_1, self.norm_2 = layer.norm_1, layer.norm_2
        self.query, self.key = layer.query, layer.key
        self.value, self.out = layer.value, layer.out

    def forward(self, x):
        y = self.norm_1(x)
        qkv = self.query(y), self.key(y), self.value(y)
        q, k, v = (w.unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.mixture(self.norm_2(x))
