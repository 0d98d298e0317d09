"""Under every layout an einsum and its gradients are those of one process, with the all-reduces foretold."""

import itertools

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from allranks import launch
from allranks.model import GPT
from allranks.parallel.layout import cuts, einsum, in_names, layout, local, spread, sums
from allranks.trace import trace

MATMUL = "batch io, io hidden -> batch hidden"
AXES = ("data", "tensor")
MISSING = {"io": 0, "hidden": 1, "batch": 2}  # in the result, in the gradient of X, in that of W


def every_layout():
    for pair in itertools.product((None, "batch", "io", "hidden"), repeat=2):
        if None in pair or len(set(pair)) == 2:
            yield {dim: axis for dim, axis in zip(pair, AXES, strict=True) if dim}


def products(X, W, G, layouts):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=AXES)
    for rules in layouts:
        x, w = (
            local(t, dims, rules, mesh).clone().requires_grad_()
            for t, dims in ((X, "batch io"), (W, "io hidden"))
        )
        with trace() as forward:
            y = einsum(MATMUL, x, w, layout=rules, mesh=mesh)
        with trace() as backward:
            y.backward(local(G, "batch hidden", rules, mesh))
        assert torch.equal(y, local(X @ W, "batch hidden", rules, mesh))
        assert torch.equal(x.grad, local(G @ W.T, "batch io", rules, mesh))
        assert torch.equal(w.grad, local(X.T @ G, "io hidden", rules, mesh))
        there, *back = sums(MATMUL, rules)
        assert forward.calls["all_reduce"] == len(there) == ("io" in rules)
        assert backward.calls["all_reduce"] == len([*itertools.chain(*back)]) == len(rules.keys() - {"io"})
    dist.barrier()


def test_every_layout_of_a_product_is_one_process():
    X, W, G = (torch.randint(-9, 10, shape).float() for shape in ((8, 12), (12, 16), (8, 16)))
    layouts = list(every_layout())
    assert len(layouts) == 13
    launch(products, X, W, G, layouts, world_size=4)


def test_a_cut_dim_is_summed_where_it_is_missing():
    for rules in every_layout():
        expected = [[], [], []]
        for dim, axis in rules.items():
            expected[MISSING[dim]].append(axis)
        assert sums(MATMUL, rules) == expected


def biases(B, G):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=AXES)
    rules = layout("batch: data, hidden: tensor")
    b = local(B, "hidden", rules, mesh).clone().requires_grad_()
    its = local(G, "batch hidden", rules, mesh)
    spread(b, "hidden", "batch hidden", rules, mesh).expand_as(its).backward(its)
    assert torch.equal(b.grad, local(G.sum(0), "hidden", rules, mesh))
    dist.barrier()


def test_the_gradient_of_a_bias_is_summed_along_the_axis_of_the_batch():
    launch(biases, torch.ones(16), torch.randint(-9, 10, (8, 16)).float(), world_size=4)


def test_an_empty_layout_needs_no_ranks():
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    assert torch.equal(einsum(MATMUL, a, b, layout=layout(""), mesh=None), a @ b)
    assert einsum("batch io, batch io ->", a, a, layout={}, mesh=None) == 6


def test_two_dims_of_one_operation_may_not_share_an_axis():
    rules = layout("batch: tensor, hidden: tensor, io: data")
    assert cuts(["batch", "io"], rules) == {"tensor": "batch", "data": "io"}
    with pytest.raises(ValueError, match="batch and hidden are both cut along tensor"):
        sums(MATMUL, rules)


def test_a_dim_is_cut_along_one_axis_only():
    with pytest.raises(ValueError, match="batch can be cut along one axis only"):
        layout("batch: data, batch: tensor")


def test_blocks_that_differ_are_refused():
    def refused():
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("all",))
        with pytest.raises(ValueError, match="2 ranks along all cannot share batch, 7, evenly"):
            local(torch.zeros(7), "batch", layout("batch: all"), mesh)
        dist.barrier()

    launch(refused, world_size=2)


def test_a_layer_in_names_has_all_its_parameters_and_a_name_for_each_dim():
    layer = GPT().layers[0]
    named = in_names(layer)
    assert sum(t.numel() for t, _ in named.values()) == sum(p.numel() for p in layer.parameters())
    assert all(t.dim() == len(dims.split()) for t, dims in named.values())
