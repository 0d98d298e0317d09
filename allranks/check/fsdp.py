"""The exercises of the chapter Fully sharded data parallel."""

import warnings

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard

from allranks import launch
from allranks.check import exercise
from allranks.model import GPT, digits, loss_of
from allranks.trace import trace

SECONDS = 20.0
LAYERS, HIDDEN = 3, 32
LIMITS = (60_000, 20_000)  # bytes: a layer fits; only its parts fit
PARTS = 3


def _model():
    torch.manual_seed(0)
    return GPT(layers=LAYERS, hidden=HIDDEN, heads=2)


def _part(batch):
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def _whole_gradients(model):
    return {name: p.grad.full_tensor() for name, p in model.named_parameters()}


def _expected(tokens):
    model = _model()
    loss_of(model, tokens).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def _are_close(gradients, expected):
    return all(torch.allclose(gradients[name], expected[name], atol=1e-6) for name in expected)


def _fewest(module, limit):
    """Units, if a module is one wherever it fits, and what is left of a module is another."""
    units = left = 0
    for child in module.children():
        nbytes = 4 * sum(p.numel() for p in child.parameters())
        if nbytes <= limit and not isinstance(child, torch.nn.ModuleList):
            units += 1
        else:
            units += _fewest(child, limit)
    left = sum(1 for _ in module.parameters(recurse=False))
    return units + bool(left)


@exercise
def units(answer):
    """`answer(model, limit)` makes units of at most `limit` bytes of whole weights, with `fully_shard`."""
    tokens = digits()[:8]

    def on_rank(limit):
        warnings.filterwarnings("ignore", "FSDP2-wrapped module")  # of the view that a Linear returns
        model = _model()
        answer(model, limit)
        if not isinstance(model, FSDPModule):
            return None
        loss_of(model, _part(tokens)).backward()
        with trace() as counted:
            loss_of(model, _part(tokens)).backward()
        gradients = {name: g / 2 for name, g in _whole_gradients(model).items()}  # of two passes
        return [call.nbytes for call in counted.log if call.kind == "reduce_scatter"], gradients

    expected = _expected(tokens)
    for limit in LIMITS:
        result = launch(on_rank, limit, world_size=4, timeout=SECONDS)[0]
        assert result, "The model itself is not sharded: pass it to `fully_shard` last."
        sizes, gradients = result
        assert _are_close(gradients, expected), "The gradients differ from one process's."
        assert max(sizes) <= limit, (
            f"With a limit of {limit:,} bytes the largest unit has {max(sizes):,} bytes."
        )
        fewest = _fewest(_model(), limit)
        assert len(sizes) <= fewest, (
            f"With a limit of {limit:,} bytes there are {len(sizes)} units, and {fewest} are enough: a "
            "module that fits need not be split."
        )
    return (
        f"{_fewest(_model(), LIMITS[0])} units of at most {LIMITS[0]:,} bytes, {fewest} of at most {limit:,}."
    )


@exercise
def accumulate(answer):
    """`answer(model, parts)` runs backward for each of `parts`, and reduces the mean gradient once."""
    tokens = digits()[: 4 * PARTS * 2]

    def on_rank():
        model = _model()
        for module in (*model.layers, model):
            fully_shard(module)
        with trace() as counted:
            answer(model, _part(tokens).chunk(PARTS))
        missing = [name for name, p in model.named_parameters() if p.grad is None]
        return counted.calls, missing or _whole_gradients(model)

    calls, gradients = launch(on_rank, world_size=4, timeout=SECONDS)[0]
    assert isinstance(gradients, dict), f"{gradients[0]} has no gradient."
    once = LAYERS + 1
    reduced, gathered = calls["reduce_scatter"], calls["all_gather"]
    assert reduced == once, (
        f"{once} units are reduced {reduced} times in {PARTS} micro-batches; expected {once}, once each."
    )
    assert _are_close(gradients, _expected(tokens)), (
        "The gradients are not the mean over all micro-batches and ranks."
    )
    sent = f"{reduced} reduce-scatters for {PARTS} micro-batches and {once} units"
    return f"{sent}, and {gathered} all-gathers."
