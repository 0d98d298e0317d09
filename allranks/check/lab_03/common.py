"""What the tasks of the lab share: models, their units, and training in one process."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from allranks import memory
from allranks.check.labs import digits, drawn
from allranks.model import GPT, loss_of

LR, MAX_NORM = 3e-3, 0.7


TAKEN = ("overlapping meshes", "Invariant encountered")  # torch, of a parameter already in a unit


PLACES = {
    "shards": "The optimizer updates the shards, and gathering casts a copy of them.",
    "norms": "There is no autocast: a LayerNorm computes in its unit's param_dtype, like everything else.",
    "layer outputs": "A layer without an output_dtype passes on the dtype it computes in.",
    "logits": "The last unit's output_dtype sets them.",
    "gradients": "A gradient ends up in the dtype of its shard, whatever dtype it was summed in.",
    "moments": "Adam creates its moments in the dtype of the shards.",
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
    torch.manual_seed(drawn(seed))
    return GPT(**{"layers": 1, "hidden": 32, "heads": 2} | sizes)


def new_tapered(seed, layers=2, hidden=32):
    """A model whose layers differ in size, so that the size of a message identifies its layer."""
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


def new_adamw(model, lr=LR):
    """AdamW in one operation: each operation on each shape of DTensor costs a rank some milliseconds."""
    return torch.optim.AdamW(model.parameters(), lr=lr, fused=True)


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
    """Train `model` in one process; return the losses."""
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


def numbers_of(model, optimizer):
    """The sum of the squares of all weights, and of all states of each name, over the ranks."""
    kinds = {"weights": list(model.parameters())}
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim():
                kinds.setdefault(f"optimizer's {name}", []).append(value)
    totals = {}
    for name in sorted(kinds):
        local = [getattr(t, "to_local", lambda t=t: t)() for t in kinds[name]]
        total = sum(t.detach().double().square().sum() for t in local).to(device_of_rank())
        dist.all_reduce(total)
        totals[name] = total.item()
    return totals


def quoted(answer):
    """What was returned, cut to fit into a line."""
    return " ".join(repr(answer).split())[:60]


def same_losses(losses, expected):
    return all(abs(a / b - 1) < 1e-5 for a, b in zip(losses, expected, strict=True))


def norm_of(gradients):
    return nn.utils.get_total_norm([g for g in gradients if g is not None]).item()


def _owner(name, units):
    """The innermost of `units` (names of modules; '' is the model) that contains the parameter `name`."""
    return max((unit for unit in units if not unit or name.startswith(f"{unit}.")), key=len)


def bytes_of_units(model, units, world_size):
    """The bytes of each unit's message, including the padding of weights whose rows do not divide evenly."""
    sizes = dict.fromkeys(units, 0)
    for name, p in model.named_parameters():
        rows, row = p.shape[0], p[0].numel()
        sizes[_owner(name, units)] += 4 * world_size * memory.shard_elements(rows, row, world_size, 0)
    return {unit: nbytes for unit, nbytes in sizes.items() if nbytes}
