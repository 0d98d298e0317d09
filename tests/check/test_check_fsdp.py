"""The checks of the chapter on FSDP say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from verdicts import verdict

from allranks.check import fsdp as checks
from allranks.model import Layer, loss_of


def descending(model, limit):
    def descend(module):
        for child in module.children():
            nbytes = 4 * sum(p.numel() for p in child.parameters())
            if nbytes > limit or isinstance(child, torch.nn.ModuleList):
                descend(child)
            else:
                fully_shard(child)

    descend(model)
    fully_shard(model)


def everything(model, limit):
    fully_shard(model)


def every_leaf(model, limit):
    for module in [m for m in model.modules() if not list(m.children())]:
        fully_shard(module)
    fully_shard(model)


def layers_only(model, limit):
    for module in [m for m in model.modules() if isinstance(m, Layer)]:
        fully_shard(module)


def list_of_layers(model, limit):
    fully_shard(model.layers)
    fully_shard(model)


@pytest.mark.parametrize(
    "answer, said",
    [
        (descending, "✓ 7 units of at most 60,000 bytes, 28 of at most 20,000."),
        (everything, "the largest unit has"),
        (every_leaf, "enough: a module that fits need not be"),
        (layers_only, "✗ The model itself is not sharded"),
        (list_of_layers, "✗ Your function did not finish"),
        (None, "✗"),
    ],
)
def test_units(capsys, answer, said):
    assert said in verdict(capsys, checks.units, answer)


def at_the_last(model, parts):
    for number, part in enumerate(parts, start=1):
        model.set_requires_gradient_sync(number == len(parts))
        (loss_of(model, part) / len(parts)).backward()


def after_each(model, parts):
    for part in parts:
        (loss_of(model, part) / len(parts)).backward()


def never(model, parts):
    model.set_requires_gradient_sync(False)
    for part in parts:
        (loss_of(model, part) / len(parts)).backward()


def summed(model, parts):
    for number, part in enumerate(parts, start=1):
        model.set_requires_gradient_sync(number == len(parts))
        loss_of(model, part).backward()


def only_the_last(model, parts):
    loss_of(model, parts[-1]).backward()


@pytest.mark.parametrize(
    "answer, said",
    [
        (at_the_last, "✓ 4 reduce-scatters for 3 micro-batches and 4 units"),
        (after_each, "✗ 4 units are reduced 12 times"),
        (never, "has no gradient"),
        (summed, "✗ The gradients are not the mean"),
        (only_the_last, "✗ The gradients are not the mean"),
        (lambda model, parts: None, "has no gradient"),
    ],
)
def test_accumulate(capsys, answer, said):
    assert said in verdict(capsys, checks.accumulate, answer)
