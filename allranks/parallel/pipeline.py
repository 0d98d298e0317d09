"""How do ranks train a model that is cut between its layers? Each passes on what comes out of its stages.

Activations go up by send and receive, and gradients come down. What a rank computes, sends and receives, and
in which order, is a list: operations (kind, micro-batch, stage), and the exchanges between them, as
`allranks.lowering` makes them of a schedule. A result has the name (kind, micro-batch, stage) of the
operation that made it, kind "F" for an activation and "B" for the gradient of an input.
"""

from collections import deque

import torch
import torch.distributed as dist
from torch.autograd.graph import get_gradient_edge


class Mail:
    """Results that this rank holds, by name, and its exchanges with other ranks of `group`, in their order.

    All that travels is a tensor `like` this one: what one micro-batch sends from a stage to the next.
    """

    def __init__(self, like, group=None):
        self.like, self.group = like, group
        self.results, self.pending = {}, deque()

    def exchange(self, messages):
        """Post all sends and receives as one batch, and return at once."""
        calls, arriving = [], {}
        for way, name, peer in messages:
            if way == "send":
                call, t = dist.isend, self.results.pop(name).contiguous()
            else:
                call, t = dist.irecv, self.like.clone()
                arriving[name] = t
            calls.append(dist.P2POp(call, t, group=self.group, group_peer=peer))
        self.pending.append((dist.batch_isend_irecv(calls), arriving, calls))

    def finish_one(self):
        """Wait for the oldest exchange that is pending; only then may what it sent be forgotten."""
        requests, arriving, _ = self.pending.popleft()
        for request in requests:
            request.wait()
        self.results |= arriving


def take(mail, *name):
    """Return a result, if need be after waiting for the exchanges up to the one that brings it."""
    while name not in mail.results:
        mail.finish_one()
    return mail.results.pop(name)


class Stage:
    """Virtual stage `number` of the model: its `module`. On the last stage, loss_of(output, target) is what a
    micro-batch adds to the loss: of `m` micro-batches, an `m`-th of its own mean.

    Of an output only its place in the graph is kept, and not its numbers. If `rematerialise`, only the input
    is kept, and the forward runs again before the backward (Huang et al. 2019, section 2.3).
    """

    def __init__(self, module, number=0, loss_of=None, rematerialise=False):
        self.module, self.number, self.loss_of = module, number, loss_of
        self.again, self.kept = rematerialise, {}

    def run(self, x, target):
        """The output for `x`, or on the last stage what it adds to the loss."""
        y = self.module(x)
        return self.loss_of(y, target) if self.loss_of else y


def forward(stage, mail, k, inputs, targets):
    """Run micro-batch `k` forward, and leave its result in the mail; return what it adds to the loss."""
    x = inputs[k]
    if stage.number > 0:
        x = take(mail, "F", k, stage.number - 1).requires_grad_()
    with torch.set_grad_enabled(not stage.again):
        y = stage.run(x, targets[k])
    stage.kept[k] = x, None if stage.again else get_gradient_edge(y)
    if stage.loss_of:
        return y.detach()
    mail.results["F", k, stage.number] = y.detach()
    return 0.0


def backward(stage, mail, k, inputs, targets):
    """Run micro-batch `k` backward, and leave the gradient of the stage's input in the mail."""
    x, edge = stage.kept.pop(k)
    if stage.again:
        edge = get_gradient_edge(stage.run(x, targets[k]))
    gradient = None if stage.loss_of else take(mail, "B", k, stage.number + 1)
    torch.autograd.backward(edge, gradient)
    if stage.number > 0:
        mail.results["B", k, stage.number] = x.grad
    return 0.0


PASSES = {"F": forward, "BW": backward}


def step(stages, mail, program, inputs, targets, passes=PASSES):
    """Run this rank's part of a program over micro-batches of one size; return the loss, a tensor.

    stages: a dict of this rank's stages, by number. The loss is 0 on all ranks but that of the last stage.
    Its gradients add up in the parameters.
    """
    loss = torch.zeros((), device=inputs[0].device)
    for action in program:
        if action.kind == "X":
            mail.exchange(action.messages)
        else:
            run, stage = passes[action.kind], stages[action.stage]
            loss += run(stage, mail, action.microbatch, inputs, targets)
    while mail.pending:
        mail.finish_one()
    return loss
