"""What do the tasks of the lab share? Models, their parts, and training in one process."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from allranks import memory
from allranks.model import GPT, digits, loss_of

LR, MAX_NORM = 3e-3, 0.7


TAKEN = ("overlapping meshes", "Invariant encountered")  # torch, of a parameter that is in a unit already


PLACES = {
    "shards": "The optimizer writes the shards, and they are what is cast when a unit is gathered.",
    "norms": "There is no autocast: a LayerNorm computes in its unit's param_dtype, as everything does.",
    "layer outputs": "A layer without an output_dtype hands on what it has computed in.",
    "logits": "output_dtype of the last call is theirs.",
    "gradients": "What backward leaves on a rank is in the dtype of its shard, whatever it was summed in.",
    "moments": "Adam makes its moments like the shards.",
}


def device_of_rank():
    """The device of the rank that calls."""
    if "nccl" in dist.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def new_mesh(*shape):
    return init_device_mesh(
        device_of_rank().type, shape, mesh_dim_names=("replicate", "shard")[-len(shape) :]
    )


def new_gpt(seed, **sizes):
    torch.manual_seed(seed)
    return GPT(**{"layers": 1, "hidden": 32, "heads": 2} | sizes)


def new_tapered(seed, layers=2, hidden=32):
    """A model whose layers differ in size, so that a message tells whose it is."""
    model = new_gpt(seed, layers=layers, hidden=hidden)
    for number, layer in enumerate(model.layers):
        width = hidden * (number + 1)
        layer.up, layer.down = nn.Linear(hidden, width), nn.Linear(width, hidden)
    return model


def cut_in_units(model, last=None, **options):
    options = {"mesh": new_mesh(dist.get_world_size())} | options
    for layer in model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options | (last or {}))


def new_adamw(model):
    """AdamW in one operation: of DTensors, each operation on each shape costs a rank some milliseconds."""
    return torch.optim.AdamW(model.parameters(), lr=LR, fused=True)


def part_of_rank(batch):
    return batch.tensor_split(dist.get_world_size())[dist.get_rank()]


def train_here(model, optimizer, batches, clip=None):
    """Train on ranks, one step a batch; return the mean losses."""
    losses = []
    for batch in batches:
        loss = loss_of(model, part_of_rank(batch))
        optimizer.zero_grad()
        loss.backward()
        if clip:
            clip(model, MAX_NORM)
        optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        losses.append(loss.item())
    return losses


def trained_serially(model, batches, clip=None):
    """The losses of one process; in the end `model` is trained."""
    optimizer = new_adamw(model)
    losses = []
    for batch in batches:
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


def new_batches(first, size, steps):
    return list(digits()[first : first + size * steps].split(size))


def quoted(answer):
    """What was returned, as it fits into a line."""
    return " ".join(repr(answer).split())[:60]


def same_losses(losses, expected):
    return all(abs(a / b - 1) < 1e-5 for a, b in zip(losses, expected, strict=True))


def norm_of(gradients):
    return nn.utils.get_total_norm([g for g in gradients if g is not None]).item()


def _owner(name, units):
    """The innermost of `units` (names of modules; '' is the model) that the parameter `name` is in."""
    return max((unit for unit in units if not unit or name.startswith(f"{unit}.")), key=len)


def bytes_of_units(model, units, world_size):
    """The bytes of each unit's message, with the padding of weights whose rows cannot be divided."""
    sizes = dict.fromkeys(units, 0)
    for name, p in model.named_parameters():
        rows, row = p.shape[0], p[0].numel()
        sizes[_owner(name, units)] += 4 * world_size * memory.shard_elements(rows, row, world_size, 0)
    return {unit: nbytes for unit, nbytes in sizes.items() if nbytes}
