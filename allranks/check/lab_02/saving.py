"""Checkpoints that rank 0 writes whole, and any number of ranks can load."""

import contextlib
import io
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from allranks.check import exercise
from allranks.check.lab_02.common import (
    RATE,
    all_on_ranks,
    device_of_rank,
    new_gpt,
    plain,
    quoted,
    weights_of,
)
from allranks.check.labs import is_written, on_ranks
from allranks.model import digits, loss_of

SLOW = 0.2  # seconds that writing a checkpoint takes here


@contextlib.contextmanager
def saved_otherwise(before=None, instead=None):
    """Let `torch.save` call `before()` first, or `instead`; yield the list of files that it is given."""
    save, files = torch.save, []

    def watched(what, file, *args, **kwargs):
        files.append(str(file))
        if instead:
            return instead(save, what, file)
        if before:
            before()
        return save(what, file, *args, **kwargs)

    torch.save = watched
    try:
        yield files
    finally:
        torch.save = save  # results are sent with it


def _fill_the_disk(save, what, file):
    whole = io.BytesIO()
    save(what, whole)
    half = whole.getvalue()[: whole.tell() // 2]
    file.write(half) if hasattr(file, "write") else Path(file).write_bytes(half)
    raise OSError("No space left on device")


def _train(model, optimizer, pictures):
    for tokens in pictures.split(4):
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        optimizer.step()


def _states(model, optimizer):
    """All numbers of a model, and all of its optimizer, as two vectors."""
    state = optimizer.state_dict()
    moments = [value.flatten().cpu() for slot in state["state"].values() for value in slot.values()]
    rates = torch.tensor([group["lr"] for group in state["param_groups"]])
    return weights_of(model), torch.cat([*moments, rates])


@exercise
def checkpoint(save, load):
    """`save(path, model, optimizer, epoch)` and `load(path, model, optimizer)`, which returns the epoch."""
    is_written(save, load)
    pictures = digits()[600:608]

    def saving(path):
        model = DistributedDataParallel(new_gpt(23).to(device_of_rank()))
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        there = []
        with saved_otherwise(before=lambda: time.sleep(SLOW)) as files:
            for epoch in (1, 2):
                _train(model, optimizer, pictures)
                at = path.stat().st_mtime_ns if path.exists() else 0
                dist.barrier()
                save(path, model, optimizer, epoch)
                there.append(path.exists() and path.stat().st_mtime_ns != at)
                dist.barrier()
        return len(files), there, _states(model, optimizer)

    def started(rank):
        model = new_gpt(90 + rank).to(device_of_rank())
        return model, torch.optim.AdamW(model.parameters(), lr=0.5)

    def alone(path):
        model, optimizer = started(5)
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            return f"torch.load cannot read it: {str(error).splitlines()[0][:80]}"
        if not isinstance(saved, dict) or not {"model", "optimizer", "epoch"} <= saved.keys():
            return "it has to be a dict with model, optimizer and epoch."
        if not isinstance(saved["model"], dict):
            return "under model it has to have a state dict."
        names = set(saved["model"]), set(model.state_dict())
        if names[0] != names[1]:
            wrong = sorted(names[0] - names[1]) or [f"no {name}" for name in sorted(names[1] - names[0])]
            return f"under model it has {wrong[0]}, and the model has {sorted(names[1])[0]} and others."
        epoch = load(path, model, optimizer)
        return plain(epoch), _states(model, optimizer)

    def dying(path):
        model, optimizer = started(5)
        with contextlib.suppress(OSError), saved_otherwise(instead=_fill_the_disk):
            save(path, model, optimizer, 8)
        try:
            return torch.load(path, map_location="cpu", weights_only=True)["epoch"]
        except Exception:
            return None

    def loading(path):
        model, optimizer = started(dist.get_rank())
        model = DistributedDataParallel(model)
        epoch = load(path, model, optimizer)
        dist.barrier()
        return plain(epoch), _states(model, optimizer)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "last.pt")
        hint = "A barrier is for all ranks: outside of what only rank 0 does."
        saved = all_on_ranks(hint, saving, path)
        for rank, (count, _, _) in enumerate(saved):
            assert count == 0 or rank == 0, (
                f"Rank {rank} has written too: all into one file, and rank 0 is enough."
            )
        assert path.exists(), "After save there is no file at `path`."
        for rank, (_, there, _) in enumerate(saved):
            assert all(there), (
                f"Rank {rank} has left save before the file was there: all wait until rank 0 is done."
            )
        left = sorted(set(os.listdir(folder)) - {path.name})
        assert not left, f"Beside the checkpoint, {left[0]} was left in its folder."
        weights, moments = saved[0][2]
        one = on_ranks(alone, path, world_size=1)[0]
        assert not isinstance(one, str), f"The file is not as specified: {one}"
        on_three = on_ranks(loading, path, world_size=3)
        spared = on_ranks(dying, path, world_size=1)[0]
    for where, (epoch, (found_weights, found_moments)) in (
        ("In one process", one),
        *((f"On rank {rank} of 3", result) for rank, result in enumerate(on_three)),
    ):
        assert torch.equal(found_weights, weights), (
            f"{where} the model has not the weights that 4 ranks have saved: every rank loads all of them."
        )
        assert found_moments.shape == moments.shape and torch.equal(found_moments, moments), (
            f"{where} the optimizer is not the saved one: AdamW's moments and the learning rate belong to it."
        )
        assert epoch == 2, f"{where} load returned {quoted(epoch)}, and saved was epoch 2."
    assert spared is not None, (
        "When the disk was full in the middle of a save, the checkpoint of before was lost with it: "
        "write another file, and put it in the place of the old one when it is complete."
    )
    assert spared == 2, "The check's full disk was not noticed: write with torch.save."
    return "Saved by rank 0 of 4, loaded in one process and on 3; a full disk spares the one before."
