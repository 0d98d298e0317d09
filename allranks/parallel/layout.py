"""How is a computation shared? Its dims have names; a layout says which axis of the mesh cuts each of them.

The rest follows (Mesh-TensorFlow, Shazeer et al. 2018): a tensor is cut along the axes of its own dims and
whole along the others, and an einsum sums over the ranks along the axes of the dims that its result lacks.
The gradient of an input is an einsum too, so the same rule says what is summed backward. `layout` is a dict
from dims to axes, `mesh` a `DeviceMesh` whose axes have these names; dims are written "batch seq io".
"""

import itertools
import string

import torch
import torch.distributed as dist


def layout(text):
    """Return "batch: data, hidden: tensor" as {"batch": "data", "hidden": "tensor"}; "" cuts nothing."""
    rules = {}
    for rule in text.split(",") if text.strip() else ():
        dim, axis = rule.split(":")
        if dim.strip() in rules:
            raise ValueError(f"{dim.strip()} can be cut along one axis only")
        rules[dim.strip()] = axis.strip()
    return rules


def cuts(dims, layout):
    """Return {axis: dim} for those of `dims` that `layout` cuts; ValueError if two of them share an axis."""
    found = {}
    for dim in dims:
        axis = layout.get(dim)
        if axis in found:
            raise ValueError(
                f"{found[axis]} and {dim} are both cut along {axis}: "
                "its ranks would have the diagonal blocks and no rank the others"
            )
        if axis is not None:
            found[axis] = dim
    return found


def local(whole, dims, layout, mesh):
    """Return this rank's block of `whole`; ValueError if the ranks along an axis cannot share it evenly."""
    dims = dims.split()
    for axis, dim in cuts(dims, layout).items():
        at, ranks = dims.index(dim), mesh[axis].size()
        if whole.shape[at] % ranks:
            raise ValueError(f"{ranks} ranks along {axis} cannot share {dim}, {whole.shape[at]}, evenly")
        whole = whole.chunk(ranks, at)[mesh.get_local_rank(axis)]
    return whole


def read(spec):
    """Return the dims of each input and of the output of "batch io, io hidden -> batch hidden"."""
    inputs, output = spec.split("->")
    return [dims.split() for dims in inputs.split(",")], output.split()


def sums(spec, layout):
    """Along which axes an einsum sums: for its output, then for the gradient of each input."""
    inputs, output = read(spec)
    cut = cuts(dict.fromkeys(itertools.chain(*inputs)), layout)
    return [[axis for axis, dim in cut.items() if dim not in dims] for dims in (output, *inputs)]


def total(t, axes, mesh):
    """Return the sum of the ranks' `t` along each of `axes`; `t` stays as it is."""
    for axis in axes:
        t = t.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(t, group=mesh.get_group(axis))
    return t


class Sums(torch.autograd.Function):
    """Sum along the axes `there` forward, and along the axes `back` backward."""

    @staticmethod
    def forward(ctx, t, there, back, mesh):
        ctx.back, ctx.mesh = back, mesh
        return total(t.view_as(t), there, mesh)

    @staticmethod
    def backward(ctx, gradient):
        return total(gradient, ctx.back, ctx.mesh), None, None, None


def einsum(spec, *tensors, layout, mesh):
    """Multiply and sum, with named dims: this rank's blocks of the inputs to its block of the output.

    spec: "batch io, io hidden -> batch hidden". ValueError if two of its dims are cut along one axis.
    """
    inputs, output = read(spec)
    there, *backs = sums(spec, layout)
    names = dict.fromkeys(itertools.chain(*inputs))
    letter = dict(zip(names, string.ascii_letters, strict=False))
    formula = [[letter[dim] for dim in dims] for dims in (*inputs, output)]
    *before, after = map("".join, formula)
    pairs = zip(tensors, backs, strict=True)
    mine = [Sums.apply(t, (), back, mesh) for t, back in pairs]
    y = torch.einsum(f"{','.join(before)}->{after}", *mine)
    return Sums.apply(y, there, (), mesh)


def spread(t, dims, over, layout, mesh):
    """Return `t`, with `dims`, for use in something with the dims `over`, a bias for instance."""
    there, back = [], sums(f"{over}, {dims} -> {over}", layout)[2]
    return Sums.apply(t, there, back, mesh)


def in_names(layer):
    """Return the parameters of a `Layer` of the running model as {name: (tensor, its dims)}.

    kind: queries, keys, values. heads, width: the columns of attention's matrices. io: the hidden size.
    """
    qkv, heads = (layer.query, layer.key, layer.value), (layer.heads, -1)
    weights, biases = (
        torch.stack([getattr(linear, which).unflatten(0, heads) for linear in qkv])
        for which in ("weight", "bias")
    )
    named = {
        "qkv": (weights, "kind heads width io"),
        "qkv bias": (biases, "kind heads width"),
        "out": (layer.out.weight.unflatten(1, heads), "io heads width"),
        "up": (layer.up.weight, "hidden io"),
        "up bias": (layer.up.bias, "hidden"),
        "down": (layer.down.weight, "io hidden"),
        "out bias": (layer.out.bias, "io"),
        "down bias": (layer.down.bias, "io"),
    }
    for norm in ("norm_1", "norm_2"):
        for which in ("weight", "bias"):
            named[f"{norm} {which}"] = getattr(getattr(layer, norm), which), "io"
    return {name: (t.detach(), dims) for name, (t, dims) in named.items()}
