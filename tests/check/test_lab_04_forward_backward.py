"""Lab 04, where autocast begins and ends: right answers in several styles, and what students get wrong."""

import pytest
import torch
import torch.nn.functional as F
from students import judged_on_ranks

from allranks import check


def forward_backward(model, tokens, dtype, loss_function=F.cross_entropy, scale=lambda loss: loss):
    with torch.autocast(tokens.device.type, dtype=dtype):
        logits = model(tokens[:, :-1]).flatten(0, 1)
        loss = loss_function(logits, tokens[:, 1:].flatten())
    scale(loss).backward()
    return loss.detach()


def by_decorator(model, tokens, dtype, loss_function=F.cross_entropy, scale=lambda loss: loss):
    @torch.autocast(device_type=tokens.device.type, dtype=dtype)
    def forward():
        x, y = tokens[:, :-1], tokens[:, 1:]
        logits = model(x)
        return loss_function(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))

    loss = forward()
    torch.autograd.backward(scale(loss))
    return loss.detach().clone()


def loss_outside_in_fp32(model, tokens, dtype, loss_function=F.cross_entropy, scale=lambda loss: loss):
    with torch.autocast(tokens.device.type, dtype=dtype):
        logits = model(tokens[:, :-1])
    loss = loss_function(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    scale(loss).backward()
    return loss.detach()


def without_a_cache(model, tokens, dtype, loss_function=F.cross_entropy, scale=lambda loss: loss):
    device = next(model.parameters()).device.type
    with torch.amp.autocast(device, dtype=dtype, cache_enabled=False):
        logits = model(tokens[:, :-1]).transpose(1, 2)
        rows = logits.transpose(1, 2).contiguous().view(-1, 28).float()
        loss = loss_function(rows, tokens[:, 1:].contiguous().view(-1))
        scaled = scale(loss)
    scaled.backward()
    return loss.detach().float()


RIGHT = [(forward_backward,), (by_decorator,), (loss_outside_in_fp32,), (without_a_cache,)]
WRONG = {
    "forward_backward": {
        "backward in autocast": (
            "`backward` ran inside autocast",
            "    scale(loss).b",
            "        scale(loss).b",
        ),
        "loss outside, on 16-bit logits": (
            "the loss was computed outside autocast",
            "        loss = loss",
            "    loss = loss",
        ),
        "loss outside, converted afterwards": (
            "the loss was computed outside autocast",
            "        loss = loss",
            "    loss = loss",
            "flatten())",
            "flatten()).float()",
        ),
        "scaled loss returned": (
            "the returned loss is the scaled one",
            "    scale(loss).b",
            "    loss = scale(loss)\n    loss.b",
        ),
        "graph kept alive": ("the returned loss still holds the graph of this step", "loss.detach()", "loss"),
        "scale forgotten": ("the gradients are not scaled", "scale(loss).b", "loss.b"),
        "torch's loss whatever is asked": (
            "`loss_function` was not called",
            "loss_function(logits,",
            "F.cross_entropy(logits,",
        ),
        "weights converted": (
            "bit copies where it needs them; the optimizer needs the weig",
            "    with torch",
            "    model.to(dtype)\n    with torch",
        ),
        "weights rounded and back": (
            "this function should not take the step",
            "    with torch",
            "    model.to(dtype)\n    model.float()\n    with torch",
        ),
        "bf16 whatever is asked": (
            "the forward pass belongs in autocast",
            "dtype=dtype)",
            "dtype=torch.bfloat16)",
        ),
        "autocast of another device": (
            "the forward pass belongs in autocast",
            "tokens.device.type",
            "'cuda'",
        ),
        "no autocast": (
            "the forward pass belongs in autocast",
            "dtype=dtype)",
            "dtype=dtype, enabled=False)",
        ),
        "autocast of the loss alone": (
            "the forward pass belongs in autocast",
            "    with torch.autocast(tokens.device.type, dtype=dtype):\n        logits = model(tokens[:, :-1]).flatten(0, 1)\n",
            "    logits = model(tokens[:, :-1]).flatten(0, 1)\n    with torch.autocast(tokens.device.type, dtype=dtype):\n",
        ),
        "targets not shifted": ("averaged over ranks by DDP", "tokens[:, 1:]", "tokens[:, :-1]"),
        "shifted the wrong way": (
            "averaged over ranks by DDP",
            "tokens[:, 1:].f",
            "tokens[:, :-1].f",
            "model(tokens[:, :-1])",
            "model(tokens[:, 1:])",
        ),
        "only the last token": (
            "every token but the first of each sequence",
            "tokens[:, 1:].flatten())",
            "tokens[:, 1:].flatten()) if 0 else loss_function(logits[-1:], tokens[-1, -1:])",
        ),
        "targets in another order": (
            "averaged over ranks by DDP",
            "tokens[:, 1:].flatten()",
            "tokens[:, 1:].T.flatten()",
        ),
        "gradients zeroed": ("there are no gradients", "    return", "    model.zero_grad()\n    return"),
        "gradients in 16 bits": (
            "they were rounded after `backward`",
            "    return",
            "    for p in model.parameters():\n        p.grad = p.grad.to(dtype).float()\n    return",
        ),
        "loss in 16 bits": ("the returned loss is in bfloat", "loss.detach()", "loss.detach().to(dtype)"),
        "loss rounded to 16 bits": (
            "return the loss itself",
            "loss.detach()",
            "loss.detach().to(dtype).float()",
        ),
        "backward twice": (
            "averaged over ranks by DDP",
            "scale(loss).backward()",
            "loss.backward(retain_graph=True)\n    scale(loss).backward()",
        ),
        "gradients of the loss, not left in grad": (
            "there are no gradients",
            "scale(loss).backward()",
            "torch.autograd.grad(scale(loss), list(model.parameters()))",
        ),
        "divided by the ranks once more": (
            "averaged over ranks by DDP",
            "scale(loss).b",
            "(scale(loss) / torch.distributed.get_world_size()).b",
        ),
        # The last: in a world that it shares with others, autocast would stay on for them.
        "autocast left on": (
            "`backward` ran inside autocast",
            "    with torch.autocast(tokens.device.type, dtype=dtype):\n",
            "    torch.autocast(tokens.device.type, dtype=dtype).__enter__()\n    if True:\n",
        ),
    }
}


@pytest.mark.stamped("lab 04")
def test_every_answer_is_told_what_it_is(nothing_is_left_behind):
    judged_on_ranks(check.lab_04.forward_backward, __name__)
