"""The trainer: stopped on some ranks, resumed on others, equal to one process that never stopped."""

import contextlib
import functools
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from allranks.check import exercise
from allranks.check.lab_02.common import RATE, device_of_rank, new_gpt, quoted
from allranks.check.lab_02.saving import saved_otherwise
from allranks.check.labs import digits, drawn, is_written, on_ranks
from allranks.launch import LaunchError
from allranks.model import loss_of

BATCH_SIZE = 12
OPTIONS = {"lr": RATE, "betas": (0.8, 0.95), "weight_decay": 0.3}  # those of no optimizer but ours
LEFTOVER = "rank 1 loads a checkpoint that rank 0 does not have"


def _loader(data, batch_size):
    sampler = DistributedSampler(data, seed=6, drop_last=True)
    return DataLoader(data, batch_size // dist.get_world_size(), sampler=sampler, drop_last=True)


def _global_batches(data, batch_size, epoch):
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=6, drop_last=True)
    sampler.set_epoch(epoch)
    return list(data[list(sampler)].split(batch_size))[: len(data) // batch_size]


def trained_serially(model, optimizer, epochs, held_out):
    """Losses of each step, and the loss on `held_out` after each epoch, of one process."""
    losses, scores = [], []
    for batches in epochs:
        for batch in batches:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            scores.append(loss_of(model, held_out).item())
    return losses, scores


def floats_of(returned):
    """(losses, scores) as lists of floats, or a sentence about what was returned instead."""
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        return f"fit returned {quoted(returned)}; expected two lists, losses and scores"
    if not all(isinstance(values, list) for values in returned):
        return "fit should return two lists of numbers"
    others = [value for values in returned for value in values if not isinstance(value, float)]
    if others:
        return f"fit returned {quoted(others[0])} among the numbers; expected floats, which .item() makes"
    return list(returned)


def _noted(model, events):
    """Let `events` list each forward: (whether it trains, rows)."""
    model.register_forward_pre_hook(
        lambda _, args: events.append(("train" if torch.is_grad_enabled() else "score", len(args[0])))
    )
    return model


def _in_order(events, who, epochs, rows):
    """Fail unless each epoch trains in parts of `rows`, scores at most 16 at a time, and then saves."""
    most = {kind: max((n for k, n in events if k == kind), default=0) for kind in ("train", "score")}
    assert most["train"] <= rows, (
        f"{who}, the model trained on {most['train']} rows at once; {rows} fit into a micro-batch."
    )
    assert most["score"] <= 16, f"{who}, {most['score']} held-out examples were computed at once; 16 fit."
    kinds = [kind for kind, _ in events]
    steps = [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind]
    assert "save" not in kinds or steps == ["train", "score", "save"] * epochs, (
        f"{who}, the epochs went {', '.join(steps)}; expected train, score, save in each: a job that dies "
        "between a save and its score never has that score."
    )


def _refuse(*_, **__):
    raise RuntimeError(LEFTOVER)


@contextlib.contextmanager
def _unseen(path):
    """Nobody who asks is told that `path` exists: a file system that is shared can be late."""
    asked = [(Path, "exists"), (Path, "is_file"), (os.path, "exists"), (os.path, "isfile")]
    real = [getattr(owner, name) for owner, name in asked]

    def late(function):
        return lambda file, **options: str(file) != str(path) and function(file, **options)

    for (owner, name), function in zip(asked, real, strict=True):
        setattr(owner, name, late(function))
    try:
        yield
    finally:
        for (owner, name), function in zip(asked, real, strict=True):
            setattr(owner, name, function)


def _first_run(*args):
    """The results on 3 ranks; rank 1 sees a folder of its own, in which another run has left a file."""
    try:
        return on_ranks(*args, world_size=3)
    except LaunchError as failure:
        if LEFTOVER not in str(failure):
            raise
        raise AssertionError(
            "Each rank asks its own disk whether there is a checkpoint. Here rank 1, on another machine, "
            "finds the file of an older run, and resumes while ranks 0 and 2 start over. Let rank 0 look "
            "and tell the others."
        ) from failure


def agree(values, expected):
    return len(values) == len(expected) and all(abs(a / b - 1) < 1e-4 for a, b in zip(values, expected))


def _data():
    """What the model learns from, and what is held out."""
    return digits()[700:741], digits()[800:837]


@functools.cache
def _serial(order, draw):
    """The losses and scores of one process whose epochs have the batches of the epochs in `order`."""
    (data, held_out), model = _data(), new_gpt(24)
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIONS)
    epochs = [_global_batches(data, BATCH_SIZE, epoch) for epoch in order]
    return trained_serially(model, optimizer, epochs, held_out)


@exercise
def fit(answer):
    """`answer(model, optimizer, loader, held_out, epochs, micro_batches, path)`: (losses, scores)."""
    is_written(answer)
    data, held_out = _data()
    batch_size, steps = BATCH_SIZE, 3

    def on_rank(path, epochs, leftover=None, late=False):
        model = new_gpt(24 + dist.get_rank()).to(device_of_rank())
        optimizer, events = torch.optim.AdamW(model.parameters(), **OPTIONS), []
        _noted(model, events)
        if leftover and dist.get_rank() == 1:  # another machine's disk, with another run's checkpoint
            torch.load = _refuse
            path = leftover
        sees = contextlib.nullcontext() if not late or dist.get_rank() != 1 else _unseen(path)
        with saved_otherwise(before=lambda: events.append(("save", 0))) as files, sees:
            returned = answer(model, optimizer, _loader(data, batch_size), held_out, epochs, 2, path)
        dist.barrier()
        return floats_of(returned), len(files), events

    losses, scores = _serial((0, 1, 2), drawn(0))
    with tempfile.TemporaryDirectory() as folder:
        path, leftover = Path(folder, "last.pt"), Path(folder, "rank_1", "last.pt")
        leftover.parent.mkdir()
        leftover.touch()
        first = _first_run(on_rank, path, 2, leftover)
        for rank, (run, *_) in enumerate(first):
            assert not isinstance(run, str), f"On rank {rank} {run}."
        there = path.exists()
        for rank, (run, *_) in enumerate(first):
            what = f"In 2 epochs of {steps} batches on 3 ranks, rank {rank}"
            assert len(run[0]) == 2 * steps, f"{what} returned {len(run[0])} losses; expected {2 * steps}."
            assert len(run[1]) == 2, f"{what} returned {len(run[1])} scores; expected 2, one an epoch."
            assert not agree(run[0], _serial((0, 0), drawn(0))[0]), (
                f"{what} had the batches of epoch 0 twice: use in_epoch with the number of the epoch."
            )
            assert agree(run[0][:1], losses[:1]), (
                f"{what} has loss {run[0][0]:.4f} at its first step, but one process has {losses[0]:.4f}. "
                "Is the loss the mean over ranks, and do all ranks start from rank 0's model?"
            )
            wrong = next((n for n, (a, b) in enumerate(zip(run[0], losses)) if abs(a / b - 1) >= 1e-4), 0)
            assert not wrong, (
                f"{what} has loss {run[0][wrong]:.4f} at step {wrong}; one process has {losses[wrong]:.4f}."
            )
            assert agree(run[1], scores[:2]), (
                f"{what} has scores {run[1][0]:.4f} and {run[1][1]:.4f} on the held-out examples, "
                f"but one process has {scores[0]:.4f} and {scores[1]:.4f}."
            )
        assert there, "After fit there is no checkpoint at `path`."
        assert first[0][1] == 2, (
            f"In 2 epochs rank 0 wrote {first[0][1]} checkpoints; expected 2, one an epoch."
        )
        second = on_ranks(on_rank, path, 3, None, True, world_size=2)
        third = on_ranks(on_rank, path, 3, world_size=1)
    for rank, (run, *_) in enumerate(second):
        what = f"Resumed on 2 ranks after 2 of 3 epochs, rank {rank}"
        assert not isinstance(run, str), f"On rank {rank} {run}."
        assert len(run[0]) != 3 * steps, (
            f"{what} trained 3 epochs, but two of them were already done. Rank 0 sees the checkpoint; rank 1 "
            "is on another machine and does not see it yet."
        )
        assert len(run[0]) == steps, f"{what} returned {len(run[0])} losses; expected {steps}."
        assert agree(run[0][:1], losses[2 * steps : 2 * steps + 1]), (
            f"{what} begins with loss {run[0][0]:.4f}; without a stop it is {losses[2 * steps]:.4f}: "
            "load the weights, and take the batches of epoch 2."
        )
        assert agree(run[0], losses[2 * steps :]), (
            f"{what} begins right, but its later losses differ: resume the optimizer too."
        )
        assert agree(run[1], scores[2:]), (
            f"{what} has score {', '.join(f'{s:.4f}' for s in run[1])}; without a stop it is {scores[2]:.4f}."
        )
    for runs, epochs, rows in ((first, 2, 2), (second, 1, 3)):
        for rank, (_, _, events) in enumerate(runs):
            _in_order(events, f"On rank {rank} of {len(runs)}", epochs, rows)
    assert third[0][0] == [[], []], (
        f"With 3 of 3 epochs done there is nothing to train; expected two empty lists, got {third[0][0]}."
    )
    return "2 epochs on 3 ranks and then 1 on 2 have the losses and scores of one process that never stopped."
