"""The pipeline of the first edition, which gloo forgives: unbatched sends, each before a receive that blocks.

Kept to be refused: see test_nccl.py.
"""

import torch
import torch.distributed as dist


class Neighbours:
    """The ranks before and after this one; `shape` is that of a micro-batch between two stages.

    `receive(source)` waits for a tensor of that shape, in float32. `send(t, target)` returns at once, unless
    the message before it, to the same rank, has not been received yet; `finish_sends()` waits for all.
    """

    def __init__(self, shape, device="cpu"):
        self.before, self.after = dist.get_rank() - 1, dist.get_rank() + 1
        self.first, self.last = self.before < 0, self.after == dist.get_world_size()
        self.shape, self.device, self.leaving = shape, device, {}

    def receive(self, source):
        t = torch.empty(self.shape, device=self.device)
        dist.recv(t, source)
        return t

    def send(self, t, target):
        if target in self.leaving:
            self.leaving[target][0].wait()
        self.leaving[target] = dist.isend(t, target), t  # keeps `t` alive

    def finish_sends(self):
        for request, _ in self.leaving.values():
            request.wait()
        self.leaving.clear()


class Stage(Neighbours):
    """This rank's part of the model, `module`. loss_of(output, target): a mean, called on the last rank.

    If `rematerialise`, only the input of the stage is kept, and its forward runs again before its backward
    (Huang et al. 2019, section 2.3).
    """

    def __init__(self, module, loss_of, shape, device="cpu", rematerialise=False):
        super().__init__(shape, device)
        self.module, self.loss_of, self.again = module, loss_of, rematerialise
        self.kept, self.loss = {}, 0.0

    def run(self, x, target):
        y = self.module(x)
        return self.loss_of(y, target) if self.last else y


def forward(stage, k, x, target):
    """Run micro-batch `k` forward: receive it (on rank 0 it is `x`), and send what comes out."""
    if not stage.first:
        x = stage.receive(stage.before).requires_grad_()
    with torch.set_grad_enabled(not stage.again):
        y = stage.run(x, target)
    stage.kept[k] = x, None if stage.again else y
    if not stage.last:
        stage.send(y.detach(), stage.after)


def backward(stage, k, target, m):
    """Run micro-batch `k` of `m` backward: receive its gradient, and send that of the stage's input."""
    x, y = stage.kept.pop(k)
    if stage.again:
        y = stage.run(x, target)
    if stage.last:
        stage.loss += y.item() / m
    y.backward(y.new_tensor(1 / m) if stage.last else stage.receive(stage.after))
    if not stage.first:
        stage.send(x.grad, stage.before)


def step(stage, order, inputs, targets):
    """Run one rank's `order` over micro-batches of one size; return the loss, 0.0 on all ranks but the last.

    Gradients of the batch's mean loss add up in the stage's parameters.
    """
    stage.loss = 0.0
    for kind, k, _ in order:
        if kind == "F":
            forward(stage, k, inputs[k], targets[k])
        else:
            backward(stage, k, targets[k], len(inputs))
    stage.finish_sends()
    return stage.loss
