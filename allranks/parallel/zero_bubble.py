"""How does a rank postpone its weight gradients, and run any order of forwards, B and W?

A backward is two operations: B, the gradient of the input, for which the rank before waits, and W, the
gradient of the weights, for which nobody waits. Orders are lists of (kind, micro-batch, virtual stage) for
each rank, as `allranks.schedules` makes them; which rank has which stage is read from them.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import get_gradient_edge


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
        b = [None]  # an input that needs no gradient has no B, and still a W
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


def tag(kind, k, stage):
    """The number of the message that the operation (kind, k, stage) needs, below 1000 stages."""
    return 2 * (1000 * k + stage) + (kind == "F")


class Mail:
    """Messages between operations: `orders` say on which rank each is; `shape` is that of every message.

    Two ranks may exchange activations of one stage and gradients of another, and want them in another order
    than they are sent; gloo tells them apart by their tags. (NCCL has no tags.) What was sent is kept until
    `finish_sends`.
    """

    def __init__(self, orders, shape):
        self.home = {op[1:]: r for r, mine in enumerate(orders) for op in mine}
        self.rank, self.shape = dist.get_rank(), shape
        self.here, self.leaving = {}, []

    def send(self, t, *needed_by):
        target = self.home[needed_by[1:]]
        if target == self.rank:
            self.here[needed_by] = t
        else:
            self.leaving.append((dist.isend(t, target, tag=tag(*needed_by)), t))

    def receive(self, kind, k, stage):
        source = self.home[k, stage - 1 if kind == "F" else stage + 1]
        if source == self.rank:
            return self.here.pop((kind, k, stage))
        t = torch.empty(self.shape)
        dist.irecv(t, source, tag=tag(kind, k, stage)).wait()
        return t

    def finish_sends(self):
        for request, _ in self.leaving:
            request.wait()
        self.leaving.clear()


class Worker(Mail):
    """This rank's side of `orders`: `parts` has the module of each of its virtual stages, by number.

    loss_of(output, target): a mean, called on the rank of the last stage. The linear layers inside `parts`
    are split. `held` is the most micro-batches, counted once for each virtual stage, that wait for B or W.
    """

    def __init__(self, orders, parts, loss_of, shape):
        super().__init__(orders, shape)
        self.order, self.parts, self.loss_of = orders[self.rank], parts, loss_of
        self.last = max(stage for _, stage in self.home)
        self.laters = {stage: [] for stage in parts}
        for stage, part in parts.items():
            split(part, self.laters[stage])
        self.kept, self.waiting, self.held, self.loss = {}, {}, 0, 0.0


def run_f(worker, k, stage, inputs, targets):
    """F: run micro-batch `k` forward through virtual stage `stage`."""
    x = inputs[k] if stage == 0 else worker.receive("F", k, stage).requires_grad_()
    y = worker.parts[stage](x)
    if stage == worker.last:
        y = worker.loss_of(y, targets[k]) / len(inputs)
        worker.loss += y.item()
    else:
        worker.send(y.detach(), "F", k, stage + 1)
    worker.kept[k, stage] = x, y


def run_b(worker, k, stage, then_w):
    """B: the gradient of the stage's input. What W needs waits, unless W is part of this (`then_w`)."""
    x, y = worker.kept.pop((k, stage))
    y.backward(None if stage == worker.last else worker.receive("B", k, stage))
    worker.waiting[k, stage] = worker.laters[stage].copy()
    worker.laters[stage].clear()
    if then_w:
        run_w(worker, k, stage)
    if stage > 0:
        worker.send(x.grad, "B", k, stage - 1)


def run_w(worker, k, stage):
    """W: the gradients of the stage's weights."""
    weight_grad(worker.waiting.pop((k, stage)))


def step(worker, inputs, targets):
    """Run this rank's order over micro-batches of one size; return the loss, 0.0 on all ranks but one.

    Gradients of the batch's mean loss add up in the weights.
    """
    worker.loss, worker.held = 0.0, 0
    for kind, k, stage in worker.order:
        if kind == "F":
            run_f(worker, k, stage, inputs, targets)
        elif kind == "W":
            run_w(worker, k, stage)
        else:
            run_b(worker, k, stage, then_w=kind == "BW")
        worker.held = max(worker.held, len(worker.kept) + len(worker.waiting))
    worker.finish_sends()
    return worker.loss
