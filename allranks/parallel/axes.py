"""Over which axes is a gradient summed when five kinds of parallelism share one program?

The model: GPT with a mixture of experts in every layer, on a mesh with the axes pp, dp, cp and tp. Tokens are
cut along dp (sequences), cp (a zig-zag) and tp (between the matrices), and experts lie on ranks of several of
these axes, folded into one (Liu et al. 2025). A parameter is cut along some axes; its gradient is summed over
the others of dp, cp and tp, and its copies there count once in the norm.
"""

import math

import torch
import torch.distributed as dist
from torch import nn

from . import context, sequence, tensor
from .combine import Part
from .experts import Dropless, Experts
from .pipeline import Mail, Stage, step

IGNORED = -100  # a target that does not count, as in `torch.nn.functional.cross_entropy`


class Groups:
    """This rank's group along any axes of a mesh, made when first asked for: `groups["cp", "tp"]`.

    sizes: a dict from axis to size, the slowest first. All ranks have to ask for the same axes in the same
    order, since each call makes the groups of all ranks. `made`: the groups so far, by their axes. ValueError
    for an axis that the mesh lacks, and for a mesh of more or fewer ranks than there are.
    """

    def __init__(self, sizes):
        if math.prod(sizes.values()) != dist.get_world_size():
            raise ValueError(f"a mesh {sizes} does not have the {dist.get_world_size()} ranks of this launch")
        self.sizes, self.made = dict(sizes), {}

    def __getitem__(self, axes):
        axes = (axes,) if isinstance(axes, str) else tuple(axes)
        if axes not in self.made:
            for members in members_of(self.sizes, axes):
                group = dist.new_group(members)
                if dist.get_rank() in members:
                    self.made[axes] = group
        return self.made[axes]

    def copies(self, axes):
        """How many ranks a group along `axes` has."""
        return math.prod(self.sizes[axis] for axis in axes)


def members_of(sizes, axes):
    """The groups of ranks that differ only in their places along `axes`: lists, of all ranks together.

    ValueError for an axis that is not in `sizes`.
    """
    names = list(sizes)
    for axis in axes:
        if axis not in names:
            raise ValueError(f"the mesh has no axis {axis!r}; it has {', '.join(names)}")
    ranks = torch.arange(math.prod(sizes.values())).view(*sizes.values())
    outside = [dim for dim, axis in enumerate(names) if axis not in axes]
    inside = [dim for dim, axis in enumerate(names) if axis in axes]
    count = math.prod(sizes[axis] for axis in axes)
    return ranks.permute(*outside, *inside).reshape(-1, count).tolist()


class FoldedLayer(nn.Module):
    """A `MixtureLayer` cut along tp, on this rank's tokens, with its experts on the ranks of `ep`.

    (batch, tokens / (cp · tp), hidden) to the same shape. ValueError if the ranks cannot share the heads.
    """

    def __init__(self, layer, tp, cp, ep):
        super().__init__()
        if layer.heads % tp.size():
            raise ValueError(f"{tp.size()} ranks cannot share {layer.heads} heads evenly")
        self.heads, self.tp, self.cp = layer.heads // tp.size(), tp, cp
        self.norm_1, self.norm_2 = layer.norm_1, layer.norm_2
        self.query = tensor.Column(layer.query, tp)
        self.key = tensor.Column(layer.key, tp)
        self.value = tensor.Column(layer.value, tp)
        self.out = sequence.SplitRow(layer.out, tp)
        self.mixture = Dropless(layer.mixture, ep)

    def forward(self, x):
        y = sequence.gather(self.norm_1(x), self.tp)
        qkv = self.query(y), self.key(y), self.value(y)
        q, k, v = (w.unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in qkv)
        y = context.ring_attention(q, k, v, True, "zigzag", self.cp)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.mixture(self.norm_2(x))


class FoldedPart(Part):
    """A stage of the model for this rank: `Part`, whose positions are those of this rank's tokens."""

    def __init__(self, model, groups, ep):
        tp, cp, pp = groups["tp"], groups["cp"], groups["pp"]
        model.layers = nn.ModuleList(FoldedLayer(layer, tp, cp, ep) for layer in model.layers)
        super().__init__(model, dist.get_rank(pp), pp.size())
        self.before = dist.get_rank(pp) * len(self.layers)  # how many layers the stages before it have
        if self.first:
            length = model.position.num_embeddings
            self.token = sequence.SplitEmbedding(model.token, tp)
            self.position = sequence.SplitPositions(model.position, tp)
            self.register_buffer("places", context.part(torch.arange(length), 0, "zigzag", cp))
        if self.last:
            self.head = sequence.SplitHead(model.head, tp)

    def forward(self, x):
        if self.first:
            x = self.token(x) + self.position(self.places.to(x.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)) if self.last else x


def cut_along(part, fold):
    """The axes along which each parameter of `part` is cut: {parameter: axes}, () for one that is whole.

    fold: the axes over whose ranks the experts are spread.
    """
    by_tp = tensor.cut_parameters(part)
    experts = {p for module in part.modules() if isinstance(module, Experts) for p in module.parameters()}
    return {p: tuple(fold) if p in experts else ("tp",) if p in by_tp else () for p in part.parameters()}


def summed_over(cut):
    """The axes over which the gradient of a parameter that the axes in `cut` cut is summed.

    Ranks have different tokens along dp, cp and tp; those of the three that do not cut it.
    """
    return tuple(axis for axis in ("dp", "cp", "tp") if axis not in cut)


def sum_gradients(part, groups, fold):
    """Sum each gradient, in place, over `summed_over` its axes: one all-reduce for each set of axes."""
    buckets = {}
    for p, cut in cut_along(part, fold).items():
        buckets.setdefault(summed_over(cut), []).append(p.grad)
    for over in sorted(buckets):  # on all stages in the same order
        if over:
            flat = torch.cat([gradient.flatten() for gradient in buckets[over]])
            dist.all_reduce(flat, group=groups[over])
            pieces = flat.split([gradient.numel() for gradient in buckets[over]])
            for gradient, piece in zip(buckets[over], pieces, strict=True):
                gradient.copy_(piece.view_as(gradient))


def gradient_norm(part, groups, fold):
    """Norm of the whole model's gradient, on every rank: what n ranks have copies of counts 1/n on each."""
    squares = sum(
        p.grad.pow(2).sum() / groups.copies(summed_over(cut)) for p, cut in cut_along(part, fold).items()
    )
    return tensor.total(squares).sqrt()


def slice_of(whole, axes, like, groups):
    """This rank's slice of `whole`, cut along `axes` in the dim in which `like` is smaller."""
    if not axes:
        return whole
    return tensor.part_of(whole, like, groups[axes])


def wrong_gradients(part, expected, groups, fold, rtol=1e-4, atol=1e-6):
    """Return the names of parameters whose gradient is not this rank's slice of the whole `expected[name]`.

    The names are those of the model in one process.
    """
    cut, wrong = cut_along(part, fold), []
    for name, p in part.named_parameters():
        kind, *rest = name.split(".")
        if kind == "layers":
            rest[0] = str(int(rest[0]) + part.before)
        name = ".".join([kind, *rest])
        right = slice_of(expected[name].to(p.device), cut[p], p, groups)
        if not torch.allclose(p.grad, right, rtol=rtol, atol=atol):
            wrong.append(name)
    return wrong


def build(model, groups, fold, program, sequences, microbatches):
    """Return (run, part): this rank's `FoldedPart`, and what leaves its gradients for a batch of tokens.

    model: with a `MixtureLayer` in every place, in one process's shapes; it is cut in place. fold: the axes
    whose ranks share the experts. program: as `allranks.lowering.lower` gives it. sequences: of the whole
    batch. `run(inputs, targets)` takes this replica's sequences, (sequences / dp, tokens), with targets
    `IGNORED` where nothing counts; it returns this rank's part of the sum of losses, divided by the number
    of targets that count on all ranks. Sum it over pp, dp and cp. ValueError if none counts in a micro-batch.
    """
    tp, cp, pp, dp, ep = (groups[axis] for axis in ("tp", "cp", "pp", "dp", fold))
    for axes in sorted({summed_over(()), summed_over(("tp",)), summed_over(fold)}):
        groups[axes]  # all ranks make them, also those whose stage does not need them
    place, last = dist.get_rank(pp), pp.size() - 1
    length, hidden = model.position.weight.shape
    device = model.position.weight.device
    part = FoldedPart(model, groups, ep).to(device)
    counted = torch.ones((), device=device)

    def share_of_loss(logits, targets):
        keep = targets.flatten() != IGNORED
        if not keep.any():
            raise ValueError("no target counts in this rank's part of a micro-batch: at least one must count")
        mean = tensor.parallel_cross_entropy(logits.flatten(0, 1)[keep], targets.flatten()[keep], tp)
        return mean * keep.sum() / counted

    stage = Stage(part, place, share_of_loss if place == last else None)
    local = sequences // dp.size() // microbatches, length // cp.size() // tp.size(), hidden
    mail = Mail(torch.empty(local, device=device), pp)

    def run(inputs, targets):
        counted.copy_(tensor.total((targets != IGNORED).sum().float(), dp))
        mine = (context.part(t, 1, "zigzag", cp).chunk(microbatches) for t in (inputs, targets))
        return step({place: stage}, mail, program[place], *mine)

    return run, part
