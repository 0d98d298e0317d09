"""Checkpoints, whole and in shards, and all tasks together."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from allranks import memory
from allranks.check import exercise, labs
from allranks.check.lab_03.common import (
    LR,
    MAX_NORM,
    cut_in_units,
    device_of_rank,
    new_adamw,
    new_batches,
    new_gpt,
    new_mesh,
    quoted,
    same_losses,
    train_here,
    trained_serially,
)
from allranks.check.lab_03.numbers import clip, precision
from allranks.check.lab_03.strategies import strategy
from allranks.check.lab_03.wrapping import held, wrap
from allranks.check.labs import is_written, on_ranks
from allranks.model import GPT, Layer


@exercise
def full_state(answer):
    """`answer(model)` is the whole state dict, on the CPU, on rank 0, and an empty dict elsewhere."""
    is_written(answer)

    def on_rank(shape, layers):
        model = cut_in_units(new_gpt(8, layers=layers).to(device_of_rank()), mesh=new_mesh(*shape))
        before = [p.to_local().clone() for p in model.parameters()]
        state = answer(model)
        unchanged = all(torch.equal(p.to_local(), b) for p, b in zip(model.parameters(), before, strict=True))
        if state is None or state is ...:
            return "nothing", unchanged
        if not isinstance(state, dict):
            return f"an object of type {type(state).__name__}", unchanged
        kinds = {"None" if value is None else type(value).__name__ for value in state.values()}
        others = kinds - {"Tensor", "Parameter"}
        if others:
            return "DTensor" if "DTensor" in others else f"a dict that contains {min(others)}", unchanged
        devices = {value.device.type for value in state.values()}
        return (state if dist.get_rank() == 0 else len(state), devices), unchanged

    for shape, layers in (((3,), 1), ((2, 2), 2)):
        ranks = on_ranks(on_rank, shape, layers, world_size=torch.Size(shape).numel())
        for rank, (state, unchanged) in enumerate(ranks):
            assert state != "DTensor", (
                f"Rank {rank} returned DTensors: these are this rank's shards, and a plain model cannot "
                "load them."
            )
            assert state != "nothing", (
                f"Rank {rank} returned None; it should return "
                f"{'an empty dict' if rank else 'the state dict, names and whole weights'}."
            )
            assert not isinstance(state, str), f"Rank {rank} returned {state}; expected a state dict."
            assert unchanged, f"The call changed the weights on rank {rank}."
            assert state[1] <= {"cpu"}, (
                f"Rank {rank} returned weights on {', '.join(sorted(state[1]))}; expected the CPU."
            )
            assert rank == 0 or state[0] == 0, (
                f"Rank {rank} returned {state[0]} whole weights too; expected an empty dict. On a server "
                "with "
                "eight ranks that makes eight models."
            )
        state, plain = ranks[0][0][0], new_gpt(8, layers=layers)
        expected = plain.state_dict()
        missing = [name for name in expected if name not in state]
        extra = [name for name in state if name not in expected]
        assert not missing, (
            f"Rank 0's state dict lacks {len(missing)} of {len(expected)} names: {missing[0]}."
        )
        assert not extra, f"Rank 0's state dict has {extra[0]}, which the plain model lacks."
        for name, value in expected.items():
            assert torch.equal(state[name], value), f"{name} in rank 0's state dict is not the whole weight."
        plain.load_state_dict(state)
    return f"{len(state)} whole weights on rank 0, which a plain model loads; none on other ranks."


@exercise
def checkpoint(save, load):
    """`save(folder, model, optimizer, step)` and `load(folder, model, optimizer)`, which returns the step."""
    is_written(save, load)

    def run(source, target, batches, stop):
        """Load from `source`, save to `target` at step `stop` (each may be None); train to the end."""
        model = cut_in_units(new_gpt(9 if source is None else 10 + dist.get_rank()).to(device_of_rank()))
        optimizer = new_adamw(model, LR if source is None else 10 * LR)  # a checkpoint brings its own rate
        step = load(source, model, optimizer) if source else 0
        if type(step) is torch.Tensor and step.numel() == 1:
            step = step.item()
        if not isinstance(step, int):
            return quoted(step), True, []
        losses = train_here(model, optimizer, batches[step:stop])
        if target:
            save(target, model, optimizer, stop)
            dist.barrier()
        losses += train_here(model, optimizer, batches[max(step, stop) :])
        return step, all(isinstance(p, DTensor) for p in model.parameters()), losses

    batches = new_batches(200, 12, steps=5)
    expected = trained_serially(new_gpt(9), batches)
    with tempfile.TemporaryDirectory() as folder:
        first, second = (os.path.join(folder, name) for name in ("first", "second"))
        for source, target, world_size, start, stop in (
            (None, first, 4, 0, 2),
            (first, second, 2, 2, 3),
            (second, None, 3, 3, 5),
        ):
            results = on_ranks(run, source, target, batches, stop, world_size=world_size)
            for rank, (step, sharded, losses) in enumerate(results):
                _goes_on(losses, expected, step, start, f"on {world_size} ranks", rank)
                assert sharded, (
                    f"On rank {rank} of {world_size}, weights are no longer DTensors; keep them sharded."
                )
            if target:
                _is_in_parts(target, world_size)
    return "Saved on 4 ranks, loaded and saved on 2, loaded on 3: the losses of a run that never stopped."


def _goes_on(losses, expected, step, start, where, rank):
    """Fail unless a run that began at `start` has the losses of the one that never stopped."""
    assert step == start, (
        f"Loaded {where}: load returned {step} on rank {rank}; expected the saved step, {start}."
    )
    got = f"rank {rank} has losses {losses[0]:.4f}, {losses[1]:.4f}"
    right = f"without a stop they are {expected[start]:.4f}, {expected[start + 1]:.4f}"
    if start:
        assert same_losses(losses[:1], expected[start : start + 1]), (
            f"Loaded {where}, {got}; {right}. The weights differ from the saved ones."
        )
        assert same_losses(losses[:2], expected[start : start + 2]), (
            f"Loaded {where}, {got}; {right}. The weights are right, the optimizer's states or options are "
            "not."
        )
    assert same_losses(losses, expected[start:]), (
        f"Training that continues after saving {where} has changed on rank {rank}: save must not touch it."
    )


def _is_in_parts(folder, world_size):
    """Fail unless several ranks have written the files in `folder`."""
    sizes = [os.path.getsize(os.path.join(f, name)) for f, _, names in os.walk(folder) for name in names]
    assert sizes, f"None of {world_size} ranks wrote anything into the folder; each should write its shards."
    assert max(sizes) < 0.75 * sum(sizes), (
        f"One file holds {max(sizes) / sum(sizes):.0%} of what {world_size} ranks saved; "
        "each rank should write its own shards."
    )


def milestone(wrap_, held_, strategy_, policies, places, clip_, full_state_, save, load):
    """Try every task, and then all of them together: the running model, stopped on 4 ranks, resumed on 2."""
    batches = new_batches(600, 12, steps=4)

    def running(seed, **options):
        torch.manual_seed(seed)
        model = GPT().to(device_of_rank())
        layers = [sum(p.numel() for p in layer.parameters()) for layer in model.layers]
        rest = sum(p.numel() for p in model.parameters()) - sum(layers)
        budget = memory.zero_bytes(sum(layers) + rest, dist.get_world_size(), 3, "fp32") + 4 * sum(layers)
        wrap_(model, (Layer,), **strategy_(layers, rest, budget, device_of_rank()) | options)
        return model, new_adamw(model)

    def stop(folder):
        model, optimizer = running(0)
        losses = train_here(model, optimizer, batches[:2], clip_)
        bytes_held = tuple(held_(model, optimizer))
        save(folder, model, optimizer, 2)
        return losses, bytes_held, full_state_(model)

    def resume(folder):
        model, optimizer = running(1)
        step = load(folder, model, optimizer)
        return train_here(model, optimizer, batches[step:], clip_)

    def in_bf16():
        inner, last = policies(torch.bfloat16, torch.float32)
        model, optimizer = running(0, mp_policy=inner, last={"mp_policy": last})
        return train_here(model, optimizer, batches[:2], clip_)

    def whole():
        torch.manual_seed(0)
        model = GPT()
        Ψ = sum(p.numel() for p in model.parameters())
        expected = trained_serially(model, batches[:2], MAX_NORM)
        halfway = {name: value.clone() for name, value in model.state_dict().items()}
        torch.manual_seed(0)
        expected = trained_serially(GPT(), batches, MAX_NORM)
        with tempfile.TemporaryDirectory() as folder:
            ranks = on_ranks(stop, folder)
            losses = ranks[0][0] + on_ranks(resume, folder, world_size=2)[0]
        assert same_losses(losses, expected), (
            f"Stopped on 4 ranks and resumed on 2, the last loss is {losses[-1]:.5f}; "
            f"one process that never stopped has {expected[-1]:.5f}."
        )
        for rank, (_, bytes_held, _) in enumerate(ranks):
            states = tuple(memory.zero_states(Ψ, 4, 3, "fp32"))
            assert bytes_held == states, f"Rank {rank} holds {bytes_held} bytes; expected {states}."
        for name, value in halfway.items():
            # Adam amplifies the rounding of small gradients
            assert torch.allclose(ranks[0][2][name], value, atol=LR / 20), (
                f"{name} in rank 0's state dict of step 2 differs from that of one process."
            )
        low = on_ranks(in_bf16, world_size=2)[0][-1]
        assert abs(low / expected[1] - 1) < 0.02, (
            f"Computed in bf16, the second loss is {low:.4f}; expected {expected[1]:.4f} to 2 %, as in fp32."
        )
        return (
            f"Loss {expected[0]:.3f} → {losses[-1]:.3f}, as in one process that never stopped; "
            f"{sum(states):,} bytes on each of 4 ranks, a quarter of {16 * Ψ:,}."
        )

    labs.milestone(
        [
            ("units from the inside out", wrap, wrap_),
            ("memory against DDP, measured", held, held_),
            ("a strategy for a budget", strategy, strategy_),
            ("a precision for each unit", precision, policies, places),
            ("clipping across shards", clip, clip_),
            ("a whole state dict on rank 0", full_state, full_state_),
            ("stop on four ranks, resume on two", checkpoint, save, load),
        ],
        whole,
        "a model that no rank holds whole, trained, saved, and resumed on other ranks.",
    )
