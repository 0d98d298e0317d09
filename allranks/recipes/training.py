"""The loop that all recipes share, and what it counts."""

import torch
import torch.distributed as dist

from allranks.callers import callers
from allranks.model import GPT, loss_of


def train(recipe, batches, parts=None):
    torch.manual_seed(0)
    model, backward, step = recipe(GPT(layers=2, hidden=32))
    parts, losses = parts or dist.get_world_size(), []
    for batch in batches:
        with callers() as counted:
            loss = loss_of(model, batch.chunk(parts)[dist.get_rank() % parts])
            backward(loss)
            step()
        loss = loss.detach().clone()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        losses.append(loss.item())
    return {
        "losses": losses,
        "wrapped": type(model).__name__,
        "calls": dict(counted.calls),
        "sent": dict(counted.sent_by_kind),
        "asked": sorted({(call.kind, who) for call, who in zip(counted.log, counted.asked, strict=True)}),
    }


def train_all(recipes, batches):
    return {name: train(recipe, batches) for name, recipe in recipes.items()}
