"""Checkpoints that rank 0 writes atomically and any number of ranks can load."""

import contextlib
import io
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from allranks.check import exercise
from allranks.check.lab_02.common import (
    RATE,
    device_of_rank,
    new_gpt,
    plain,
    quoted,
    weights_of,
)
from allranks.check.labs import all_on_ranks, digits, is_written, on_ranks
from allranks.model import GPT, loss_of

SLOW = 0.2  # seconds that writing a checkpoint takes here
REMOVES = {"os.remove": "removes", "os.truncate": "truncates"}  # audit events that destroy a checkpoint


@contextlib.contextmanager
def saved_otherwise(before=None, instead=None):
    """Make `torch.save` call `before()` first, or `instead`; yield the list of files that it is given."""
    save, files = torch.save, []

    def watched(what, file, *args, **kwargs):
        files.append(str(file if isinstance(file, str | Path) else getattr(file, "name", file)))
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


def _watch(path):
    """List what this process does to the file `path` other than reading or replacing it, from now on."""
    done = []

    def hook(event, args):
        if not args or not isinstance(args[0], str | os.PathLike) or os.fspath(args[0]) != str(path):
            return
        if event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR):
            done.append("writes to")
        elif event in REMOVES:
            done.append(REMOVES[event])
        elif event == "os.rename":
            done.append("renames")

    sys.addaudithook(hook)  # for the life of the process: use it on a rank
    return done


class Counted(GPT):
    """A model with a frozen weight and a buffer: a state dict holds more than what an optimizer trains."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.token.requires_grad_(False)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, tokens):
        if self.training:
            self.seen += len(tokens)
        return super().forward(tokens)


def _train(model, optimizer, examples):
    for tokens in examples.split(4):
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        optimizer.step()


def _states(model, optimizer):
    """Everything in a model, and everything in its optimizer, as two vectors."""
    state = optimizer.state_dict()
    moments = [value.flatten().cpu() for slot in state["state"].values() for value in slot.values()]
    rates = torch.tensor([group["lr"] for group in state["param_groups"]])
    buffers = [buffer.flatten().cpu() for buffer in model.buffers()]
    return torch.cat([weights_of(model), *buffers]), torch.cat([*moments, rates])


@exercise
def checkpoint(save, load):
    """`save(path, model, optimizer, epoch)` and `load(path, model, optimizer)`, which returns the epoch."""
    is_written(save, load)
    examples = digits()[600:608]

    def saving(path):
        model = DistributedDataParallel(new_gpt(23, Counted).to(device_of_rank()))
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        there, done = [], _watch(path)
        with saved_otherwise(before=lambda: time.sleep(SLOW)) as files:
            for epoch in (1, 2):
                _train(model, optimizer, examples)
                at = path.stat().st_mtime_ns if path.exists() else 0
                dist.barrier()
                save(path, model, optimizer, epoch)
                there.append(path.exists() and path.stat().st_mtime_ns != at)
                dist.barrier()
        elsewhere = [f for f in files if "/" in f and Path(f).parent != path.parent]
        return len(files), there, _states(model, optimizer), done, elsewhere

    def started(rank):
        model = new_gpt(90 + rank, Counted).to(device_of_rank())
        return model, torch.optim.AdamW(model.parameters(), lr=0.5)

    def alone(path):
        model, optimizer = started(5)
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            return f"torch.load cannot read it: {str(error).splitlines()[0][:80]}"
        if not isinstance(saved, dict) or not {"model", "optimizer", "epoch"} <= saved.keys():
            return "expected a dict with model, optimizer and epoch."
        if not isinstance(saved["model"], dict):
            return "expected a state dict under model."
        names = set(saved["model"]), set(model.state_dict())
        if names[0] != names[1]:
            wrong = sorted(names[0] - names[1]) or [f"no {name}" for name in sorted(names[1] - names[0])]
            return f"under model it has {wrong[0]}; the plain model has {sorted(names[1])[0]} and others."
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
        hint = "Every rank has to reach the barrier: keep it outside the code that only rank 0 runs."
        saved = all_on_ranks(hint, saving, path)
        for rank, (count, *_) in enumerate(saved):
            assert count == 0 or rank == 0, (
                f"Rank {rank} writes too, into the same file; only rank 0 should write."
            )
        assert path.exists(), "After save there is no file at `path`; rank 0 should write it."
        for rank, (_, there, *_) in enumerate(saved):
            assert all(there), (
                f"Rank {rank} left save before the file was complete: all ranks wait until rank 0 is done."
            )
        left = sorted(set(os.listdir(folder)) - {path.name})
        assert not left, f"save left {left[0]} in the folder of the checkpoint."
        (weights, moments), done, elsewhere = saved[0][2:]
        assert not elsewhere, (
            "Rank 0 writes to another folder first, which may be on another disk: moving then copies the "
            "file, and is not one step. Write beside `path`."
        )
        one = on_ranks(alone, path, world_size=1)[0]
        assert not isinstance(one, str), f"The file differs from the specification: {one}"
        on_three = on_ranks(loading, path, world_size=3)
        spared = on_ranks(dying, path, world_size=1)[0]
    for where, (epoch, (loaded_weights, loaded_moments)) in (
        ("In one process", one),
        *((f"On rank {rank} of 3", result) for rank, result in enumerate(on_three)),
    ):
        assert torch.equal(loaded_weights, weights), (
            f"{where}, the model does not have the weights that 4 ranks saved: every rank should load them."
        )
        assert loaded_moments.shape == moments.shape and torch.equal(loaded_moments, moments), (
            f"{where}, the optimizer differs from the saved one: load AdamW's moments and learning rate too."
        )
        assert epoch == 2, f"{where}, load returned {quoted(epoch)}; expected the saved epoch, 2."
    assert spared is not None, (
        "When the disk was full in the middle of a save, the previous checkpoint was lost too: "
        "write another file, and replace the old one when it is complete."
    )
    assert spared == 2, "The check simulates a full disk, and save did not notice: write with torch.save."
    assert not done, (
        f"Rank 0 {done[0]} the old checkpoint before the new one is complete in its place: a job that dies "
        "then has none. os.replace does it in one step."
    )
    return "Rank 0 of 4 saves; one process and 3 ranks load; a full disk leaves the old checkpoint."
