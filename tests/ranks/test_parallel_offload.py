"""Adam on the host, or in a file, changes where the states are and not one bit of what is trained."""

import os

import pytest
import torch
import torch.distributed as dist

from allranks import launch, memory
from allranks.model import GPT, loss_of
from allranks.parallel.offload import FileAdam, HostAdam, move
from allranks.parallel.zero import Zero2, shard, step

STEPS, RATE = 4, 3e-3


def new_model():
    torch.manual_seed(0)
    return GPT(layers=1, hidden=16).bfloat16()


def batches():
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(28, (6, 9), generator=draw) for _ in range(STEPS)]


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def in_one_process(parts):
    """Mixed precision without slices: the mean of the gradients of `parts` parts of each batch."""
    model = new_model()
    weights = list(model.parameters())
    masters = [w.detach().float() for w in weights]
    adam = torch.optim.AdamW(masters, lr=RATE)
    for batch in batches():
        gradients = [torch.autograd.grad(loss_of(model, part), weights) for part in batch.chunk(parts)]
        for master, *of_parts in zip(masters, *gradients, strict=True):
            master.grad = (sum(of_parts) / parts).float()
        adam.step()
        with torch.no_grad():
            for w, master in zip(weights, masters, strict=True):
                w.copy_(master)
    return flat(model)


def on_ranks(folder=None):
    model, rank = new_model(), dist.get_rank()
    units = shard(Zero2, [*model.layers, model])
    slices = [unit.mine for unit in units]
    file = folder and f"{folder}/{rank}"
    adam = FileAdam(slices, file, lr=RATE) if file else HostAdam(slices, lr=RATE)
    for batch in batches():
        loss_of(model, batch.chunk(dist.get_world_size())[rank]).backward()
        step(adam, units)
    size = os.path.getsize(file) if file else None
    return flat(model), dict(adam.moved), size, sum(len(piece) for piece in slices)


@pytest.mark.parametrize("world_size", [1, 2])
def test_offloaded_ranks_equal_one_process_bit_for_bit(world_size):
    (expected,) = launch(in_one_process, world_size, world_size=1)  # one thread, as on a rank
    for weights, *_ in launch(on_ranks, world_size=world_size):
        assert torch.equal(weights, expected)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_file_changes_no_bit_and_moves_what_the_arithmetic_says(world_size, tmp_path):
    in_memory = launch(on_ranks, world_size=world_size)
    in_files = launch(on_ranks, str(tmp_path), world_size=world_size)
    for (weights, moved, _, held), (filed, moved_filed, size, _) in zip(in_memory, in_files, strict=True):
        assert torch.equal(weights, filed)
        traffic = memory.offload_traffic(held, optimizer="nvme")
        assert size == traffic.disk_read == 12 * held
        link = {"to_host": STEPS * traffic.to_host, "to_device": STEPS * traffic.to_device}
        assert moved == link
        disk = {"disk_read": STEPS * traffic.disk_read, "disk_written": STEPS * traffic.disk_written}
        assert moved_filed == link | disk


def test_what_is_in_the_file_is_what_adam_knows(tmp_path):
    slices = [torch.ones(5), torch.ones(3)]
    adam = FileAdam(slices, str(tmp_path / "states"), lr=RATE)
    for piece in slices:
        piece.grad = torch.full_like(piece, 2.0)
    adam.step()
    found = torch.frombuffer(bytearray((tmp_path / "states").read_bytes()), dtype=torch.float32)
    first = found[:15].view(3, 5)
    assert torch.equal(first[0], slices[0])
    assert torch.allclose(first[1], torch.full((5,), 0.1 * 2.0))
    assert torch.allclose(first[2], torch.full((5,), 0.001 * 4.0))


def test_a_transfer_that_would_convert_is_refused():
    with pytest.raises(ValueError, match="neither dtype nor shape"):
        move(torch.ones(3), torch.ones(3).bfloat16(), "to_host", {})
