"""How do several ranks compute one layer? Each holds slices of its matrices; two operators do the talking.

f copies forward and sums the gradients backward, g sums forward and copies backward. A matrix cut by columns
and then one cut by rows need one f before and one g behind them (Shoeybi et al. 2019, section 3). The ranks
of `group`, of all ranks without one, share a layer; all of them get the same tokens.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def total(t, group=None, op=dist.ReduceOp.SUM):
    """Return the sum, or what `op` says, of all ranks' `t`, which stays as it is."""
    t = t.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(t, op=op, group=group)
    return t


class CopyThenSum(torch.autograd.Function):
    """f of Megatron-LM: the identity forward, an all-reduce backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return total(gradient, ctx.group), None


class SumThenCopy(torch.autograd.Function):
    """g of Megatron-LM: an all-reduce forward, the identity backward."""

    @staticmethod
    def forward(ctx, x, group):
        return total(x, group)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def f(x, group=None):
    """Return `x`, the same on all ranks, for each rank to use in its own way."""
    return CopyThenSum.apply(x, group)


def g(x, group=None):
    """Return the sum of the ranks' `x`, for all ranks to use in the same way."""
    return SumThenCopy.apply(x, group)


def cut(t, dim, group=None):
    """Return this rank's slice of `t` along `dim`, a parameter; ValueError if the slices would differ."""
    ranks = dist.get_world_size(group)
    if t.shape[dim] % ranks:
        raise ValueError(f"{ranks} ranks cannot share {t.shape[dim]} evenly")
    return nn.Parameter(t.detach().chunk(ranks, dim)[dist.get_rank(group)].clone())


class Column(nn.Module):
    """A linear layer cut by columns: a whole input, behind an f, to this rank's slice of the output.

    (…, inputs) to (…, outputs / ranks); the weight is (outputs / ranks, inputs).
    """

    def __init__(self, linear, group=None):
        super().__init__()
        self.weight = cut(linear.weight, 0, group)
        self.bias = None if linear.bias is None else cut(linear.bias, 0, group)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Row(nn.Module):
    """A linear layer cut by rows: this rank's slice of the input to the whole output, the same on all ranks.

    (…, inputs / ranks) to (…, outputs); the weight is (outputs, inputs / ranks), and the bias is whole.
    """

    def __init__(self, linear, group=None):
        super().__init__()
        self.group = group
        self.weight, self.bias = cut(linear.weight, 1, group), linear.bias

    def forward(self, x):
        y = g(F.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias


class ParallelLayer(nn.Module):
    """A `Layer` of the running model, cut: a quarter of the heads and of the MLP on each of four ranks.

    ValueError if the ranks cannot share the heads evenly: then a head would lie on two of them.
    """

    def __init__(self, layer, group=None):
        super().__init__()
        t = dist.get_world_size(group)
        if layer.heads % t:
            raise ValueError(f"{t} ranks cannot share {layer.heads} heads evenly")
        self.heads, self.group = layer.heads // t, group
        self.norm_1, self.norm_2 = layer.norm_1, layer.norm_2
        self.query, self.key = Column(layer.query, group), Column(layer.key, group)
        self.value, self.out = Column(layer.value, group), Row(layer.out, group)
        self.up, self.down = Column(layer.up, group), Row(layer.down, group)

    def forward(self, x):
        y = f(self.norm_1(x), self.group)
        qkv = self.query(y), self.key(y), self.value(y)
        q, k, v = (w.unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(f(self.norm_2(x), self.group))))


def in_my_slice(tokens, size, group=None):
    """Return where in this rank's `size` words each token is (0 if elsewhere), and whether it is there."""
    place = tokens - size * dist.get_rank(group)
    here = (place >= 0) & (place < size)
    return place * here, here


class ParallelEmbedding(nn.Module):
    """An embedding cut by vocabulary: tokens to whole vectors, the same on all ranks."""

    def __init__(self, embedding, group=None):
        super().__init__()
        self.weight, self.group = cut(embedding.weight, 0, group), group

    def forward(self, tokens):
        place, here = in_my_slice(tokens, len(self.weight), self.group)
        return g(F.embedding(place, self.weight) * here[..., None], self.group)


class ParallelHead(Column):
    """The output layer cut by vocabulary: hidden states to this rank's slice of the logits."""

    def __init__(self, linear, group=None):
        super().__init__(linear, group)
        self.group = group

    def forward(self, x):
        return super().forward(f(x, self.group))


def parallel_cross_entropy(logits, targets, group=None):
    """Mean cross-entropy of `targets` (n), from this rank's words of the logits (n, vocabulary / ranks).

    In fp32, whatever the logits are.
    """
    largest = total(logits.detach().amax(-1), group, dist.ReduceOp.MAX)
    logits = logits.float() - largest[:, None]
    sum_of_exp = g(logits.exp().sum(-1), group)
    place, here = in_my_slice(targets, logits.shape[-1], group)
    right = g(logits.gather(-1, place[:, None])[:, 0] * here, group)
    return (sum_of_exp.log() - right).mean()


def cut_parameters(part):
    """Return the parameters of which this rank has a slice; of the others all ranks have equal copies."""
    cut = set()
    for module in part.modules():
        if isinstance(module, Column | ParallelEmbedding):
            cut.update(module.parameters())
        elif isinstance(module, Row):
            cut.add(module.weight)
    return cut


def parallelize(model, group=None):
    """Cut the running model in place, and return it: it gives slices of the logits now.

    (batch, tokens) to (batch, tokens, vocabulary / ranks). ValueError if the ranks cannot share its words,
    heads or columns evenly.
    """
    model.token = ParallelEmbedding(model.token, group)
    layers = [ParallelLayer(layer, group) for layer in model.layers]
    model.layers = nn.ModuleList(layers)
    model.head = ParallelHead(model.head, group)
    return model


def parallel_loss(model, tokens, group=None):
    """What `loss_of` computes, from slices of the logits: a mean, the same on all ranks.

    tokens: (batch, sequence + 1), of which the first are the inputs and the last the targets.
    """
    tokens = tokens.to(next(model.parameters()).device)
    logits = model(tokens[:, :-1]).flatten(0, 1)
    return parallel_cross_entropy(logits, tokens[:, 1:].flatten(), group)


def part_of(whole, part, group=None):
    """Return this rank's slice of `whole`, cut in the dim in which `part` is smaller, if there is one."""
    for dim in range(whole.dim()):
        if whole.shape[dim] != part.shape[dim]:
            return cut(whole, dim, group)
    return whole


def wrong_gradients(module, expected, group=None, rtol=1e-4, atol=1e-6):
    """Return the names of parameters whose gradient is not this rank's part of the whole `expected[name]`."""
    wrong = []
    for name, p in module.named_parameters():
        part = part_of(expected[name].to(p.device), p, group)
        if not torch.allclose(p.grad, part, rtol=rtol, atol=atol):
            wrong.append(name)
    return wrong
