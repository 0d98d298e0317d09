"""How is the book's model trained where somebody else starts the ranks? With the same call of `launch`.

    python deploy/cluster/train.py                          four ranks on this machine
    torchrun --nnodes=2 … deploy/cluster/train.py           the ranks of two machines (see torchrun.md)

Each rank holds a shard of the model (`fully_shard`). Every few steps all of them write a checkpoint of
shards; a job that starts again, on as many ranks as there are then, goes on from the newest one.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from allranks import launch
from allranks.model import GPT, digits, loss_of


def sharded_model(device):
    """The running model, cut into its layers, each sharded over all ranks."""
    torch.manual_seed(0)  # the same start on every rank
    model = GPT().to(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def batch(data, step, size):
    """This rank's part of the step's batch; the batch is the same whatever the number of ranks."""
    chosen = torch.randint(len(data), (size,), generator=torch.Generator().manual_seed(step))
    return data[chosen].chunk(dist.get_world_size())[dist.get_rank()]


def newest(folder):
    """The number of steps after which the newest complete checkpoint was written; 0 if there is none."""
    done = [int(path.parent.name) for path in Path(folder).glob("*/.metadata")]  # DCP writes it last
    return max(done, default=0)


def train(data, folder, steps, every, size=64, after_step=None):
    """Train up to step `steps`, a checkpoint after each `every`; return (first step, last loss)."""
    device = "cuda" if "nccl" in dist.get_backend() else "cpu"
    model = sharded_model(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = newest(folder)
    if first:
        weights, states = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": states}, checkpoint_id=f"{folder}/{first}")
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    loss = torch.tensor(torch.nan)
    for step in range(first, steps):
        loss = loss_of(model, batch(data, step, size))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after_step:
            after_step(step)
        if (step + 1) % every == 0:
            weights, states = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": states}, checkpoint_id=f"{folder}/{step + 1}")
    loss = loss.detach()
    dist.all_reduce(loss)
    return first, loss.item() / dist.get_world_size()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--folder", default="checkpoints", help="shared by all machines")
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--every", type=int, default=10)
    given = options.parse_args()
    first, loss = launch(train, digits(), given.folder, given.steps, given.every, timeout=600)[0]
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"steps {first} to {given.steps}: loss {loss:.6f}")
