"""How does a token reach many experts, but cross the slow link to a node only once?

A stage sends one copy of a token to each rank of a group that it has to visit, with its choices and weights.
Two stages make DeepEP's way: over the ranks with the same place in each node, then over the ranks of a node.
Outputs return by the same way, added up at each stop (DeepSeek-V3, section 3.2.2).
"""

import math
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F

from .experts import AllToAll, ExpertParallel, balance_loss, choose, exchange


def send_once(x, weights, chosen, target, group):
    """One copy of each row to each rank of `group` among its `target`s: what arrived, and the way back.

    x: (rows, hidden). weights, chosen, target: (rows, k); target −1 is a choice that goes nowhere. Returns
    x, weights and chosen as they arrive, with −1 for choices that go elsewhere, and the way back: source
    rows, sent, received.
    """
    size = dist.get_world_size(group)
    visits = F.one_hot(target + 1, size + 1)[..., 1:].amax(1)
    to, rows = visits.T.nonzero(as_tuple=True)
    sent = visits.sum(0)
    received = exchange(sent, group=group).tolist()
    sent = sent.tolist()
    here = torch.where(target[rows] == to[:, None], chosen[rows], -1)
    x = AllToAll.apply(x[rows], sent, received, group)
    weights = AllToAll.apply(weights[rows], sent, received, group)
    return x, weights, exchange(here, sent, received, group), (rows, sent, received)


def bring_back(y, way, number, group):
    """Outputs to where their tokens came from, those of one token added up: (number, hidden)."""
    rows, sent, received = way
    back = AllToAll.apply(y, received, sent, group)
    return back.new_zeros(number, back.shape[1]).index_add(0, rows, back)


def node_groups(per_node):
    """This rank's group inside its node, and that of the ranks with the same place in each node."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    nodes = [list(range(first, first + per_node)) for first in range(0, ranks, per_node)]
    inside = [dist.new_group(node) for node in nodes][rank // per_node]
    between = [dist.new_group(list(place)) for place in zip(*nodes, strict=True)][rank % per_node]
    return inside, between


class Hierarchical(ExpertParallel):
    """An `ExpertParallel` without drops that sends a token once to a node, and fans it out there.

    groups: those of `node_groups`. `copies` holds what this rank sent: inside its node, and between nodes.
    """

    def __init__(self, mixture, groups):
        super().__init__(mixture)
        self.groups = groups

    def forward(self, x):
        tokens = x.flatten(0, -2)
        scores = self.gate(tokens).softmax(-1)
        weights, chosen = choose(scores, self.k, self.bias)
        self.balance = balance_loss(scores, chosen)
        self.load = F.one_hot(chosen, len(self.bias)).sum((0, 1))
        return self.way(tokens, weights, chosen).view(x.shape)

    def way(self, x, weights, chosen):
        inside, between = self.groups
        per_node, part = dist.get_world_size(inside), len(self.experts.up)
        node = chosen // (part * per_node)
        x1, w1, c1, way1 = send_once(x, weights, chosen, node, between)
        place = torch.where(c1 < 0, -1, c1 // part % per_node)
        x2, w2, c2, way2 = send_once(x1, w1, c1, place, inside)
        own = torch.where(c2 < 0, -1, c2 % part)
        y2 = torch.zeros_like(x2)
        for e in range(part):
            weight = (w2 * (own == e)).sum(1)
            rows = (own == e).any(1).nonzero()[:, 0]
            out = F.gelu(x2[rows] @ self.experts.up[e]) @ self.experts.down[e]
            y2 = y2.index_add(0, rows, weight[rows, None] * out)
        y1 = bring_back(y2, way2, len(x1), inside)
        self.copies = tuple(
            sum(sent) - sent[dist.get_rank(group)]
            for group, (_, sent, _) in ((inside, way2), (between, way1))
        )
        return bring_back(y1, way1, len(x), between)


@contextmanager
def sent_by_link(per_node):
    """What this rank's all-to-alls send to others: bytes inside its node and between nodes, and messages.

    with sent_by_link(2) as sent:
        mixture(x)
    sent  # {"inside": 1024, "between": 2048, "messages": 6}
    """
    sent = dict.fromkeys(("inside", "between", "messages"), 0)
    plain, rank = dist.all_to_all_single, dist.get_rank()

    def counting(out, x, received=None, parts=None, group=None):
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        row = math.prod(x.shape[1:]) * x.element_size()
        for to, rows in zip(ranks, parts or [len(x) // len(ranks)] * len(ranks), strict=True):
            if to != rank:
                sent["inside" if to // per_node == rank // per_node else "between"] += rows * row
                sent["messages"] += 1
        return plain(out, x, received, parts, group=group)

    dist.all_to_all_single = counting
    try:
        yield sent
    finally:
        dist.all_to_all_single = plain
