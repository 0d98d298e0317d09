"""A transformer layer shared by pairs of ranks: equal to one process, with two all-reduces each way."""

import copy
import random

import torch
import torch.distributed as dist

from allranks.check import exercise
from allranks.check.lab_07.common import agreed, drawn, must, must_be, on_ranks, pair
from allranks.check.labs import is_written
from allranks.model import Layer
from allranks.parallel.tensor import part_of
from allranks.trace import trace

MATRICES = {"query": 0, "key": 0, "value": 0, "up": 0, "out": 1, "down": 1}


def _judge(cut_layer, through, layer, inputs, gradients):
    group, me = pair(), dist.get_rank() // 2
    whole, layer = copy.deepcopy(layer), copy.deepcopy(layer)
    right_x = inputs[me].clone().requires_grad_()
    right = whole(right_x)
    right.backward(gradients[me])
    with agreed():
        cut_layer(layer, group)
        for name, dim in MATRICES.items():
            found, all_of_it = getattr(layer, name).weight, getattr(whole, name).weight
            size = list(all_of_it.shape)
            size[dim] //= 2
            must(
                list(found.shape) == size,
                f"{name} holds a weight {tuple(found.shape)}; expected {tuple(size)}, which is half.",
            )
    x = inputs[me].clone().requires_grad_()
    with agreed():
        with trace() as forward:
            y = through(layer, x, group)
        why = "Is a sum missing, doubled, or after the residual?"
        must_be(y, right.detach(), "The layer's output", why)
    with agreed():
        with trace() as backward:
            y.backward(gradients[me])
        must(x.grad is not None, "x has no gradient; expected one.")
        why = "An f comes before query, key and value, and before up."
        must_be(x.grad, right_x.grad, "The gradient of x", why)
        all_of_them = dict(whole.named_parameters())
        for name, p in layer.named_parameters():
            must(p.grad is not None, f"{name} has no gradient; expected one.")
            expected = part_of(all_of_them[name].grad, p, group).detach()
            must_be(p.grad, expected, f"The gradient of {name}", "f comes after the norm.")
        for way, counted in ("forward", forward), ("backward", backward):
            calls = dict(counted.calls)
            must(
                calls == {"all_reduce": 2},
                f"{way} makes {calls}; expected 2 all-reduces: one for attention, one for the MLP.",
            )


@exercise
def layers(cut_layer, through):
    """`cut_layer(layer, group)` and `through(layer, x, group)` on two pairs of ranks."""
    is_written(cut_layer, through)
    torch.manual_seed(random.randrange(2**31))
    layer = Layer(16, 4)
    for norm in layer.norm_1, layer.norm_2:
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    on_ranks(_judge, cut_layer, through, layer, drawn(2, 3, 7, 16), drawn(2, 3, 7, 16), world_size=4)
    return "A layer on two ranks equals one process, with two all-reduces forward and two backward."
