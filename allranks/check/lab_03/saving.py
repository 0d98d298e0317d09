"""Checkpoints, whole and in shards."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor

from allranks.check import exercise
from allranks.check.lab_03.common import (
    LR,
    cut_in_units,
    device_of_rank,
    new_adamw,
    new_batches,
    new_gpt,
    new_mesh,
    numbers_of,
    quoted,
    same_losses,
    train_here,
    trained_serially,
)
from allranks.check.labs import all_on_ranks, is_written
from allranks.held import held


@exercise
def full_state(answer):
    """`answer(model)` is the whole state dict, on the CPU, on rank 0, and an empty dict elsewhere."""
    is_written(answer)

    def on_rank(shape, layers):
        model = new_gpt(8, layers=layers).to(device_of_rank())
        model.position.weight.requires_grad_(False)
        cut_in_units(model, mesh=new_mesh(*shape))
        before = [p.to_local().clone() for p in model.parameters()]
        with held() as counted:
            state = answer(model)
        peak = max(counted.history, default=0)
        if not all(isinstance(p, DTensor) for p in model.parameters()):
            return "unsharded", peak, True
        unchanged = all(torch.equal(p.to_local(), b) for p, b in zip(model.parameters(), before, strict=True))
        if state is None or state is ...:
            return "nothing", peak, unchanged
        if not isinstance(state, dict):
            return f"an object of type {type(state).__name__}", peak, unchanged
        kinds = {"None" if value is None else type(value).__name__ for value in state.values()}
        others = kinds - {"Tensor", "Parameter"}
        if others:
            what = "DTensor" if "DTensor" in others else f"a dict that contains {min(others)}"
            return what, peak, unchanged
        devices = {value.device.type for value in state.values()}
        return (state if dist.get_rank() == 0 else len(state), devices), peak, unchanged

    hint = "Every rank has to make the call, because gathering a whole weight takes a part from each."
    for shape, layers in (((3,), 1), ((2, 2), 3)):
        ranks = all_on_ranks(hint, on_rank, shape, layers, world_size=torch.Size(shape).numel())
        plain = new_gpt(8, layers=layers)
        size = sum(p.nbytes for p in plain.parameters())
        for rank, (state, peak, unchanged) in enumerate(ranks):
            assert state != "unsharded", (
                f"On rank {rank} the model's weights are whole after the call; keep them sharded."
            )
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
                "with eight ranks that makes eight models."
            )
            assert not rank or layers == 1 or peak < 0.8 * size, (
                f"Rank {rank} returned an empty dict, but before that it held {peak:,} bytes at once, of the "
                f"model's {size:,}: gather one weight after another, and keep none."
            )
        state = ranks[0][0][0]
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
    return f"Rank 0 has {len(state)} whole weights, which a plain model loads; other ranks have none."


@exercise
def checkpoint(save, load):
    """`save(folder, model, optimizer, step)` and `load(folder, model, optimizer)`, which returns the step."""
    is_written(save, load)

    def run(source, target, batches, stop):
        """Load from `source`, save to `target` at step `stop` (each may be None); train to the end."""
        model = cut_in_units(new_gpt(9 if source is None else 10 + dist.get_rank()).to(device_of_rank()))
        optimizer = new_adamw(model, LR if source is None else 10 * LR)  # a checkpoint brings its own rate
        try:
            step = load(source, model, optimizer) if source else 0
        except CheckpointException as error:
            return f"lacks ({next(iter(error.failures.values()))[0]})", True, [], None, None
        if type(step) is torch.Tensor and step.numel() == 1:
            step = step.item()
        if not isinstance(step, int):
            return quoted(step), True, [], None, None
        loaded = numbers_of(model, optimizer) if source else None
        losses, saved = train_here(model, optimizer, batches[step:stop]), None
        if target:
            saved = numbers_of(model, optimizer)
            save(target, model, optimizer, stop)
            dist.barrier()
        losses += train_here(model, optimizer, batches[max(step, stop) :])
        sharded = all(isinstance(p, DTensor) for p in model.parameters())
        return step, sharded, losses, loaded, saved

    hint = "Every rank has to call dcp.save and dcp.load: each writes and reads its own shards."
    batches = new_batches(200, 12, steps=5)
    expected, written = trained_serially(new_gpt(9), batches), None
    with tempfile.TemporaryDirectory() as folder:
        first, second = (os.path.join(folder, name) for name in ("first", "second"))
        for source, target, world_size, start, stop in (
            (None, first, 4, 0, 2),
            (first, second, 2, 2, 3),
            (second, None, 3, 3, 5),
        ):
            results = all_on_ranks(hint, run, source, target, batches, stop, world_size=world_size)
            for rank, (step, sharded, losses, loaded, _) in enumerate(results):
                _goes_on(losses, expected, step, start, f"on {world_size} ranks", rank)
                assert sharded, (
                    f"On rank {rank} of {world_size}, weights are no longer DTensors; keep them sharded."
                )
                other = [n for n, v in (written or {}).items() if abs(loaded.get(n, 0) / v - 1) > 1e-7]
                assert not other, (
                    f"On rank {rank} of {world_size}, the {other[0]} differ from those that were saved: "
                    "do not cast anything."
                )
            written = results[0][-1]
            if target:
                _is_in_parts(target, world_size)
    return (
        "Saved on 4 ranks, loaded and saved on 2, loaded on 3: the losses equal those of a run that never "
        "stopped."
    )


def _goes_on(losses, expected, step, start, where, rank):
    """Fail unless a run that began at `start` has the losses of the one that never stopped."""
    assert not str(step).startswith("lacks"), (
        f"Loaded {where}: the checkpoint {str(step).replace('(', 'what load asks for (', 1)[:120]}. "
        "save has to write the weights, the optimizer's states and `step`."
    )
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
            f"Loaded {where}, {got}; {right}. The weights are right, but the optimizer's states or "
            "options are not."
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
