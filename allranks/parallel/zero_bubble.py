"""How does a rank postpone its weight gradients, and run any order of forwards, B and W?

A backward is two operations: B, the gradient of the input, for which the rank before waits, and W, the
gradient of the weights, for which nobody waits. `allranks.parallel.pipeline.step` runs them all, given the
`PASSES` of this module.
"""

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from allranks.parallel.pipeline import Stage, backward, forward


class Deferred(torch.autograd.Function):
    """Apply `module` to `x`; its backward gives the input's gradient, and appends to `later` what W needs.

    `weights` are those of `module`: named here, so that backward comes by even if `x` needs no gradient.
    """

    @staticmethod
    def forward(ctx, x, module, later, *weights):
        with torch.enable_grad():
            inside = x.detach().requires_grad_()
            y = module(inside)
        ctx.inside, ctx.edge = inside, get_gradient_edge(y)
        ctx.weights, ctx.later = weights, later
        return y.detach()

    @staticmethod
    def backward(ctx, gradient):
        ctx.later.append((ctx.edge, gradient, ctx.weights))
        edge, inside = ctx.edge, ctx.inside
        b = [None]  # an input that needs no gradient has no B, but still a W
        if ctx.needs_input_grad[0]:
            b = torch.autograd.grad(edge, inside, gradient, retain_graph=True)
        return b[0], None, None, *(None for _ in ctx.weights)


class Split(nn.Module):
    """`module`, whose weight gradients wait in the list `later` until `weight_grad(later)`."""

    def __init__(self, module, later):
        super().__init__()
        self.module, self.later = module, later

    def forward(self, x):
        return Deferred.apply(x, self.module, self.later, *self.module.parameters())


def split(module, later):
    """Put a `Split` around every linear layer inside `module`, and return `module`."""
    for name, child in list(module.named_children()):
        halves = Split if isinstance(child, nn.Linear) else split
        setattr(module, name, halves(child, later))
    return module


def weight_grad(later):
    """W: add to each weight's `grad` what waits for it in `later`, and empty the list."""
    if later:
        edges, gradients, weights = zip(*later, strict=True)
        every = [weight for each in weights for weight in each]
        later.clear()
        torch.autograd.backward(edges, gradients, inputs=every)


class SplitStage(Stage):
    """A `Stage` whose linear layers are split. `waiting`: what each micro-batch still needs for its W."""

    def __init__(self, module, *args, **more):
        self.later, self.waiting = [], {}
        super().__init__(split(module, self.later), *args, **more)


def input_grad(stage, mail, k, inputs, targets):
    """B: the gradient of the stage's input. What W needs waits."""
    backward(stage, mail, k, inputs, targets)
    stage.waiting[k] = stage.later.copy()
    stage.later.clear()
    return 0.0


def run_weight_grad(stage, mail, k, inputs, targets):
    """W: the gradients of the stage's weights."""
    weight_grad(stage.waiting.pop(k))
    return 0.0


def whole(stage, mail, k, inputs, targets):
    """BW: a backward that is not split."""
    input_grad(stage, mail, k, inputs, targets)
    return run_weight_grad(stage, mail, k, inputs, targets)


PASSES = {"F": forward, "B": input_grad, "W": run_weight_grad, "BW": whole}
