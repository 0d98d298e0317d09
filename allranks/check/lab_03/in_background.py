"""A checkpoint that is written while training goes on."""

import contextlib
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from allranks.check import exercise
from allranks.check.lab_03.common import (
    LR,
    cut_in_units,
    device_of_rank,
    new_adamw,
    new_batches,
    new_gpt,
    numbers_of,
    quoted,
    train_here,
)
from allranks.check.labs import all_on_ranks, is_written

PATIENCE = 5.0  # seconds that a thread has to begin writing, and that it is then held back: a machine is busy
MESSAGES = "gather_object", "scatter_object_list", "all_gather_object", "broadcast_object_list", "all_reduce"


class Disk:
    """A disk that waits: what a thread writes to it is held back until `may_write`, or `PATIENCE` is over."""

    def __init__(self, full=False):
        self.full, self.may_write = full, threading.Event()
        self.asked, self.wrote, self.default_group = False, False, False

    @property
    def begun(self):
        return self.asked or self.default_group

    @contextlib.contextmanager
    def in_use(self):
        """A block in which all writers of torch's checkpoints use this disk."""
        write, here = dcp.FileSystemWriter.write_data, threading.current_thread()
        sends = {name: getattr(dist, name) for name in MESSAGES}

        def held_back(writer, *args, **options):
            self.asked = True
            if threading.current_thread() is not here:  # nobody else would let it write
                self.may_write.wait(PATIENCE)
            self.wrote = True
            if self.full:
                raise OSError("The disk was full.")
            time.sleep(0.2)
            return write(writer, *args, **options)

        def watched(name):
            def call(*args, **options):
                if threading.current_thread() is not here and options.get("group") in (
                    None,
                    dist.group.WORLD,
                ):
                    self.default_group = True
                    raise RuntimeError("the default group, from a thread")
                return sends[name](*args, **options)

            return call

        dcp.FileSystemWriter.write_data = held_back
        for name in MESSAGES:
            setattr(dist, name, watched(name))
        try:
            yield
        finally:
            dcp.FileSystemWriter.write_data = write
            for name, send in sends.items():
                setattr(dist, name, send)


@exercise
def background(begin, end, load):
    """`begin(folder, model, optimizer, step)` returns what `end` waits for; `load` reads what was written."""
    is_written(begin, end, load)
    batches = new_batches(420, 12, steps=4)

    def on_rank(folder, full):
        model = cut_in_units(new_gpt(15).to(device_of_rank()))
        optimizer = new_adamw(model)
        train_here(model, optimizer, batches[:1])
        saved, disk = numbers_of(model, optimizer), Disk(full)
        said, threads = {"error": None}, threading.active_count()
        with disk.in_use():
            saving = begin(folder, model, optimizer, 1)
            said["early"] = disk.wrote
            until = time.monotonic() + PATIENCE
            while not disk.begun and threading.active_count() > threads and time.monotonic() < until:
                time.sleep(0.01)
            said["begun"] = disk.begun
            if full:
                disk.may_write.set()
            else:
                train_here(model, optimizer, batches[1:3])
                disk.may_write.set()
            try:
                end(saving)
            except (Exception, CheckpointException) as error:  # which is no Exception
                said["error"] = " ".join(str(error).split())[:80] or type(error).__name__
            said["complete"] = os.path.exists(os.path.join(folder, ".metadata"))
            if not said["complete"]:
                time.sleep(0.5)  # that what still writes is not disturbed
        dist.barrier()
        said |= {"trains": all(p.requires_grad for p in model.parameters()), "group": disk.default_group}
        return said | {"saved": saved, "now": numbers_of(model, optimizer)}

    def resumed(folder):
        model = cut_in_units(new_gpt(16).to(device_of_rank()))
        optimizer = new_adamw(model, 10 * LR)
        try:
            step = load(folder, model, optimizer)
        except CheckpointException as error:
            return f"lacks what load asks for ({next(iter(error.failures.values()))[0]})"[:120], None
        return (step.item() if isinstance(step, torch.Tensor) else step), numbers_of(model, optimizer)

    hint = "All ranks have to begin and to end the save; its thread has to have a group of its own."
    with tempfile.TemporaryDirectory() as folder:
        good, bad = (os.path.join(folder, name) for name in ("good", "bad"))
        for rank, said in enumerate(all_on_ranks(hint, on_rank, good, False, world_size=2)):
            _is_written_beside_training(said, f"On rank {rank} of 2")
        results = all_on_ranks(hint, resumed, good, world_size=2)
        for step, numbers in results:
            _is_what_was_saved(step, numbers, said)
        for rank, said in enumerate(all_on_ranks(hint, on_rank, bad, True, world_size=2)):
            assert said["error"], (
                f"The disk was full, and end_save did not raise on rank {rank}: training would go on "
                "without a checkpoint. Let `result()` raise the thread's exception."
            )
    return (
        "Two more steps were trained before a byte was written, but the file holds the step at which the "
        "save began."
    )


def _is_written_beside_training(said, case):
    assert not said["early"], (
        f"{case}, the disk wrote before begin_save returned: training stands still until the save is done. "
        "async_save returns as soon as there is a copy."
    )
    assert not said["group"], (
        f"{case}, the thread that writes sent messages over the default group, where training sends its own: "
        'they can meet. Give it a group of its own, dist.new_group(backend="gloo").'
    )
    assert said["begun"], (
        f"{case}, nothing had been written or begun after begin_save: a thread should write during "
        "training, on every rank."
    )
    assert said["error"] is None, f"{case}, end_save raised: {said['error']}"
    assert said["trains"], f"{case}, weights no longer require gradients; a save should not touch training."
    assert said["complete"], (
        f"{case}, end_save returned before the checkpoint was complete: wait for the thread, on every rank."
    )


def _is_what_was_saved(step, numbers, said):
    assert not isinstance(step, str), f"What begin_save wrote {step}; write the parts that your save writes."
    assert step == 1, f"load returned {quoted(step)}; begin_save got step 1."
    for name, right in said["saved"].items():
        found, later = numbers.get(name, 0.0), said["now"][name]
        assert abs(found / later - 1) > 1e-9, (
            f"The {name} in the file are as training has made them since, two steps later: the thread has "
            "to write a copy made in begin_save, and `.cpu()` of a CPU tensor makes no copy."
        )
        assert abs(found / right - 1) < 1e-9, f"The {name} in the file are not those of begin_save."
