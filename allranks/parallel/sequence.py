"""How do ranks share what f and g leave whole? Between the matrices of a layer each has a part of the tokens.

An all-gather stands where a layer's f was, a reduce-scatter where its g was, and each is the other's backward
(Korthikanti et al. 2022, section 4.2.2, who call them g and ḡ). Tensors are (batch, sequence, hidden), and a
rank of `group` has its part of dim 1. A weight that is not cut meets only these tokens, and its gradient is a
partial sum: `sum_gradients` once a step.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from . import tensor


def start_all_gather(x, group=None):
    """Begin an `all_gather`; return a function that waits for it and returns the whole."""
    ranks = dist.get_world_size(group)
    parts = x.new_empty(ranks * len(x), *x.shape[1:])
    request = dist.all_gather_single(parts, x.contiguous(), group=group, async_op=True)

    def finish():
        request.wait()
        return parts.unflatten(0, (ranks, -1)).movedim(0, 1).flatten(1, 2)

    return finish


def start_reduce_scatter(x, group=None):
    """Begin a `reduce_scatter`; return a function that waits for it and returns this rank's part."""
    ranks, tokens = dist.get_world_size(group), x.shape[1]
    if tokens % ranks:
        raise ValueError(f"{ranks} ranks cannot share {tokens} tokens evenly")
    parts = x.unflatten(1, (ranks, -1)).movedim(1, 0).contiguous()
    mine = torch.empty_like(parts[0])
    request = dist.reduce_scatter_single(mine, parts.flatten(0, 1), group=group, async_op=True)

    def finish():
        request.wait()
        return mine

    return finish


def all_gather(x, group=None):
    """Return the whole sequence, (batch, tokens, hidden), of which each rank has the part `x`.

    Collectives cut dim 0, and the tokens are dim 1: one copy puts them there, none for a batch of 1.
    """
    return start_all_gather(x, group)()


def reduce_scatter(x, group=None):
    """Return this rank's part of the sum of the ranks' `x`, each a whole sequence.

    (batch, tokens, hidden) to (batch, tokens / ranks, hidden); ValueError if that is not whole.
    """
    return start_reduce_scatter(x, group)()


class GatherThenScatter(torch.autograd.Function):
    """g of Korthikanti et al.: an all-gather forward, a reduce-scatter backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return all_gather(x, group)

    @staticmethod
    def backward(ctx, gradient):
        return reduce_scatter(gradient, ctx.group), None


class ScatterThenGather(torch.autograd.Function):
    """ḡ of Korthikanti et al.: a reduce-scatter forward, an all-gather backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return reduce_scatter(x, group)

    @staticmethod
    def backward(ctx, gradient):
        return all_gather(gradient, ctx.group), None


def gather(x, group=None):
    """Return the whole sequence, for each rank to use in its own way."""
    return GatherThenScatter.apply(x, group)


def scatter(x, group=None):
    """Return this rank's part of the sum of the ranks' `x`."""
    return ScatterThenGather.apply(x, group)


class GatherAgain(torch.autograd.Function):
    """The whole sequence times each of `weights`; kept is the part, and backward gathers it again.

    Backward, each of the two collectives runs beside a product that does not need it.
    """

    @staticmethod
    def forward(ctx, x, group, *weights):
        ctx.group = group
        ctx.save_for_backward(x, *weights)
        whole = all_gather(x, group)
        return tuple(F.linear(whole, weight) for weight in weights)

    @staticmethod
    def backward(ctx, *gradients):
        x, *weights = ctx.saved_tensors
        gathered = start_all_gather(x, ctx.group)
        pairs = zip(gradients, weights, strict=True)
        scattered = start_reduce_scatter(sum(dy @ weight for dy, weight in pairs), ctx.group)
        whole = gathered().flatten(0, 1)
        of_weights = [dy.flatten(0, 1).T @ whole for dy in gradients]
        return scattered(), None, *of_weights


class SplitRow(tensor.Row):
    """A `Row` whose output is this rank's part of the sequence."""

    def forward(self, x):
        return scatter(F.linear(x, self.weight), self.group) + self.bias


class SplitLayer(tensor.ParallelLayer):
    """A `ParallelLayer` that takes and gives this rank's part of the sequence."""

    def __init__(self, layer, group=None):
        super().__init__(layer, group)
        self.out = SplitRow(layer.out, group)
        self.down = SplitRow(layer.down, group)

    def forward(self, x):
        y = gather(self.norm_1(x), self.group)
        qkv = self.query(y), self.key(y), self.value(y)
        q, k, v = (w.unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(gather(self.norm_2(x), self.group))))


class SplitEmbedding(tensor.ParallelEmbedding):
    """A `ParallelEmbedding` that gives the vectors of this rank's part of the sequence."""

    def forward(self, tokens):
        place, here = tensor.in_my_slice(tokens, len(self.weight), self.group)
        y = F.embedding(place, self.weight) * here[..., None]
        return scatter(y, self.group)


class SplitPositions(nn.Module):
    """The embedding of this rank's part of the positions."""

    def __init__(self, embedding, group=None):
        super().__init__()
        self.weight, self.group = embedding.weight, group

    def forward(self, positions):
        parts = positions.chunk(dist.get_world_size(self.group))
        return F.embedding(parts[dist.get_rank(self.group)], self.weight)


class SplitHead(tensor.ParallelHead):
    """A `ParallelHead` that takes this rank's part of the sequence; its logits are of all tokens."""

    def forward(self, x):
        return F.linear(gather(x, self.group), self.weight)


def split(model, group=None):
    """Cut the running model and its sequence in place, and return it; `parallel_loss` works on it.

    ValueError if the ranks cannot share its words, heads or columns evenly; of the tokens, at the first call.
    """
    model.token = SplitEmbedding(model.token, group)
    model.position = SplitPositions(model.position, group)
    model.layers = nn.ModuleList(SplitLayer(layer, group) for layer in model.layers)
    model.head = SplitHead(model.head, group)
    return model


def whole_parameters(model):
    """Return what each rank has all of, in any module: norms, positions, biases behind a reduce-scatter."""
    cut = tensor.cut_parameters(model)
    return [p for p in model.parameters() if p not in cut]


def sum_gradients(model, group=None):
    """Sum the gradients of what each rank has all of, in place, in one all-reduce: once a step, before it.

    Each of these parameters has to have a gradient.
    """
    gradients = [p.grad for p in whole_parameters(model)]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat, group=group)
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, summed in zip(gradients, flat.split(sizes), strict=True):
        gradient.copy_(summed.view_as(gradient))
