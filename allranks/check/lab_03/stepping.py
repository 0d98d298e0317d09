"""The peak of a step, with recomputation; and micro-batches whose gradients are reduced once."""

import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint import state_dict
from torch.distributed.fsdp import FSDPModule
from torch.utils.checkpoint import checkpoint

from allranks.check import exercise
from allranks.check.lab_03.common import (
    cut_in_units,
    device_of_rank,
    new_gpt,
    new_mesh,
    part_of_rank,
    quoted,
)
from allranks.check.labs import all_on_ranks, digits, is_written
from allranks.held import held
from allranks.kept import kept_by
from allranks.model import Layer, loss_of
from allranks.trace import trace


class Dropping(nn.Module):
    """A layer with dropout, whose random numbers have to be the same when it is computed again."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return F.dropout(self.layer(x), 0.2, self.training)


def _mixed(seed):
    """A model of four layers; all but the second are of the kind `Dropping`."""
    model = new_gpt(seed, layers=4)
    for number in (0, 2, 3):
        model.layers[number] = Dropping(model.layers[number])
    return model


def _known_steps():
    """(name, a function, its peak in bytes): what is freed, what is left, and two bytes an element."""
    left, device = [], device_of_rank()

    def freed():
        torch.ones(500_000, device=device)
        left.append(torch.ones(200_000, device=device))

    def grows():
        a = torch.ones(100_000, device=device)
        b = torch.cat([a, a])
        left.append(torch.cat([b, b, b]).bfloat16())

    return [("freed", freed, 2_000_000), ("grows", grows, 4_800_000)]


@exercise
def recompute(peak, answer):
    """`peak(step)` is the peak of `step()` in bytes; `answer(model, kinds)` lets modules recompute."""
    is_written(peak, answer)
    tokens = digits()[300:308]

    def on_rank():
        known = [(name, peak(step), right) for name, step, right in _known_steps()]
        return known, [tried(how) for how in (answer, _recomputed, lambda *_: None)]

    def tried(how):
        """(units, calls of each layer, peak, bytes that autograd keeps, gradients, names, steps run)."""
        model = _mixed(12).to(device_of_rank())
        layers = len(model.layers)
        how(model, (Dropping,))
        calls, runs = [0] * layers, []
        for number, layer in enumerate(m for m in model.modules() if isinstance(m, Layer)):
            layer.up.register_forward_hook(lambda *_, n=number: calls.__setitem__(n, calls[n] + 1))
        cut_in_units(model)
        units = sum(isinstance(module, FSDPModule) for module in model.modules())

        def step():
            torch.manual_seed(7)
            runs.append(1)
            loss_of(model, tokens).backward()

        with held() as counted:  # of the first step, which makes what FSDP later resizes
            told = peak(step)
        told, counts, ran = (told if isinstance(told, int | float) else quoted(told)), [*calls], len(runs)
        gradients = {n: p.grad for n, p in model.named_parameters()}
        gradients = [g if g is None else g.full_tensor().cpu() for g in gradients.values()]
        names = sorted(state_dict.get_model_state_dict(model))
        kept, loss = kept_by(lambda: loss_of(model, tokens), [])
        loss.backward()
        return units, counts, told, max(counted.history, default=0), kept, gradients, names, ran

    known, (own, right, plain) = all_on_ranks("", on_rank, world_size=2)[0]
    units, counts, told, most, kept, gradients, names, ran = own
    assert ran == 1, f"In peak, the step ran {ran} times; peak should run the step once and watch it."
    for name, found, nbytes in known:
        _is_peak(found, nbytes, f"Of a step with {'two' if name == 'freed' else 'three'} tensors, peak")
    _is_peak(told, most, "Of a step of training, peak")
    assert units == right[0] and names == right[6] and len(counts) == len(right[1]), (
        f"After recompute the model has {units - 1} layers that can be units, and {len(names)} weights; "
        f"before it, {right[0] - 1} and {len(right[6])}. It should change how layers compute, not which "
        "there are."
    )
    assert not all(g is None for g in gradients), "After a step no gradient has arrived at any weight."
    missing = sum(g is None for g in gradients)
    assert not missing, (
        f"After a step {missing} weights have no gradient: recomputing needs the graph, so nothing may be "
        "detached or run under no_grad."
    )
    extra = [n for n, (a, b) in enumerate(zip(counts, right[1], strict=True)) if b == 1 and a > 1]
    assert not extra, (
        f"Layer {extra[0]} is computed {counts[extra[0]]} times, but is not of these kinds. A checkpoint "
        "around the whole model is no help: before the first backward it computes all layers again, so "
        "nothing is saved at the moment that counts."
    )
    for number, (a, b) in enumerate(zip(counts, right[1], strict=True)):
        assert a == b, (
            f"In a step layer {number} is computed {a} time{'s' * (a != 1)}; expected {b}, in forward and "
            f"again in backward. It keeps {kept:,} bytes for backward; {right[4]:,} are enough."
        )
    assert kept <= 1.05 * right[4], (
        f"{kept:,} bytes are kept for backward; expected {right[4]:,}: of each of `kinds` only its input."
    )
    assert most <= 1.08 * right[3], (
        f"The peak of a step is {most:,} bytes; expected {right[3]:,}, and {plain[3]:,} without "
        "recomputation: backward should recompute one layer at a time."
    )
    same = (torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(gradients, plain[5], strict=True))
    assert all(same), (
        "The gradients differ from those without recomputation. The layers have dropout: the second time "
        "they have to draw the random numbers of the first, in training mode."
    )
    return (
        f"The peak of a step falls from {plain[3]:,} to {most:,} bytes; the gradients are the same, dropout "
        "included."
    )


def _recomputed(model, kinds):
    for module in model.modules():
        if isinstance(module, kinds):
            forward = module.forward
            module.forward = lambda *args, f=forward: checkpoint(f, *args, use_reentrant=False)


def _is_peak(told, nbytes, what):
    """Fail unless `told` is `nbytes`; on a GPU its libraries have workspaces, too."""
    assert isinstance(told, int | float), f"{what} returned {told}; expected a number of bytes."
    more = 2**26 if torch.cuda.is_available() else 0
    assert -0.02 * nbytes - 4096 <= told - nbytes <= 0.02 * nbytes + 4096 + more, (
        f"{what} returned {told:,.0f} bytes; expected {nbytes:,}, the most bytes alive at once."
    )


@exercise
def accumulate(answer, price):
    """`answer(model, rows, micro_batches)` reduces once; `price(parameters, shards)` is what that holds."""
    is_written(answer, price)
    tokens = digits()[330:360]

    def on_rank(rows, micro_batches):
        model = cut_in_units(new_gpt(13).to(device_of_rank()))
        events = []  # how many rows a forward gets, and 0 for a backward
        model.register_forward_pre_hook(lambda _, args: events.append(len(args[0])))
        model.register_forward_hook(lambda *given: _note_backward(given[-1], events))
        rank, world_size = dist.get_rank(), dist.get_world_size()
        results = []
        for batch in tokens.split(rows * world_size)[:2]:
            model.zero_grad()
            weights = [p.detach().to_local().clone() for p in model.parameters()]
            events.clear()
            with trace() as counted:
                answer(model, batch[rank * rows : (rank + 1) * rows].clone(), micro_batches)
            gradients = [p.grad for p in model.parameters()]
            sharded = [g is None or hasattr(g, "full_tensor") for g in gradients]
            if not all(sharded):
                return "unsharded"
            gradients = [None if g is None else g.full_tensor().cpu() for g in gradients]
            after = [p.detach().to_local() for p in model.parameters()]
            unchanged = all(torch.equal(a, b) for a, b in zip(weights, after, strict=True))
            reduced = counted.calls["reduce_scatter"]
            results.append((gradients, reduced, unchanged, [*events]))
        return results

    def priced(cases):
        return [price(*case) for case in cases]

    hint = "All ranks have to gather and reduce the same units in the same order."
    for world_size, rows, micro_batches in ((2, 7, 3), (3, 5, 2)):
        parts = ", ".join(str(len(part)) for part in torch.empty(rows).tensor_split(micro_batches))
        case = f"With {rows} rows a rank on {world_size} ranks, in micro-batches of {parts}"
        steps = all_on_ranks(hint, on_rank, rows, micro_batches, world_size=world_size)[0]
        assert steps != "unsharded", f"{case}, gradients are no longer DTensors; keep them sharded."
        for number, (found, reduced, unchanged, events) in enumerate(steps):
            case = f"In a second step, {case[0].lower()}{case[1:]}" if number else case
            batch = tokens.split(rows * world_size)[number]
            model = new_gpt(13)
            loss_of(model, batch).backward()
            expected = [p.grad for p in model.parameters()]
            _are_the_gradients(found, expected, case, reduced, micro_batches)
            assert unchanged, f"{case}, the weights have changed; leave the step to the optimizer."
            largest = max((e for e in events if e), default=0)
            assert largest <= -(-rows // micro_batches), (
                f"{case}, the model saw {largest} rows at once; expected at most {-(-rows // micro_batches)}."
            )
            assert not any(a and b for a, b in itertools.pairwise(events)), (
                f"{case}, a forward began before the backward of the one before it: both keep their "
                "activations, which together do not fit."
            )
    Ψ = sum(p.numel() for p in new_gpt(13).parameters())
    cases = [(Ψ, 2), (8_000_000_000, 64), (12_000, 3)]
    more = all_on_ranks(hint, _measured_price, tokens, world_size=2)[0]
    told = all_on_ranks(hint, priced, cases, world_size=1)[0]
    for (parameters, shards), nbytes in zip(cases, told, strict=True):
        _is_price(parameters, shards, nbytes, more if parameters == Ψ else None)
    return (
        f"Gradients are the whole batch's, reduced once. Between two micro-batches, each of 2 ranks holds "
        f"{more:,} bytes more for {Ψ:,} parameters."
    )


def _note_backward(logits, events):
    """Append 0 to `events` when backward comes to `logits`."""
    if logits.requires_grad:
        logits.register_hook(lambda _: events.append(0))


def _measured_price(tokens):
    """The bytes that a rank holds more between two micro-batches, because nothing is reduced yet."""
    alive = []
    for reduces in (False, True):
        model = cut_in_units(new_gpt(13).to(device_of_rank()), mesh=new_mesh(dist.get_world_size()))
        loss_of(model, part_of_rank(tokens)).backward()
        model.zero_grad()
        with held() as counted:
            model.set_requires_gradient_sync(reduces)
            loss_of(model, part_of_rank(tokens)).backward()
            alive.append(counted.now())
    return alive[0] - alive[1]


def _are_the_gradients(found, expected, case, reduced, micro_batches):
    """Fail unless `found` are the gradients of one process, reduced once."""
    missing = sum(g is None for g in found)
    assert missing < len(found), (
        f"{case}, no gradient has arrived: the last micro-batch has to reduce what was summed."
    )
    assert not missing, (
        f"{case}, {missing} of {len(found)} weights have no gradient: some units never reduce."
    )
    norm = torch.stack([g.norm() for g in expected]).norm()
    ours = torch.stack([g.norm() for g in found]).norm()
    error = torch.stack([(a - b).norm() for a, b in zip(found, expected, strict=True)]).norm()
    if error < 1e-3 * norm:
        assert reduced == 2, (
            f"{case}, the gradients are right, but units are reduced {reduced} times: 2 units, once each, "
            "are enough."
        )
        return
    factor = float(ours / norm)
    assert 0.7 < factor < 1.4, (
        f"{case}, the gradients are {factor:.2g} times as long as in one process with all rows: they are the "
        "mean over all of them, not a sum over micro-batches or ranks, nor one micro-batch's."
    )
    raise AssertionError(
        f"{case}, the gradients differ from those of one process with all rows"
        + (f", and units are reduced {reduced} times" if reduced != 2 else "")
        + ": every row has the same weight, whether its micro-batch is large or small."
    )


def _is_price(parameters, shards, nbytes, measured):
    assert isinstance(nbytes, int | float), f"price returned {quoted(nbytes)}; expected a number of bytes."
    right = 4 * parameters - 4 * parameters / shards
    case = f"With {parameters:,} parameters in {shards} shards, price is {nbytes:,.0f} bytes"
    counted = f", as counted between two micro-batches: {measured:,}" if measured else ""
    assert nbytes != 4 * parameters, (
        f"{case}; expected {right:,.0f}{counted}. Whole gradients take that, but a shard of them would be "
        "there anyway."
    )
    assert abs(nbytes - right) < 2, (
        f"{case}; expected {right:,.0f}{counted}. Until they are reduced, a rank has to hold them whole, "
        "instead of a shard."
    )
