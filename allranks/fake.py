"""What does one rank of a large world hold and call? One process finds out, without the others.

Every collective returns as if all other ranks had taken part, and tensors have shapes but no memory. So bytes
and calls are right; times and values are not. torch's own tests work like this.
"""

import contextlib

import torch
import torch.distributed as dist

from allranks import private
from allranks.trace import trace


def as_one_of(world_size, rank, work, *args):
    """Return `work(*args)`, run as rank `rank` of `world_size` ranks that are not there.

    For a process that `launch` has started with `world_size=1`: its own world is left for good.
    """
    dist.destroy_process_group()
    private.fake_world(rank, world_size)
    return work(*args)


@contextlib.contextmanager
def step_of(model):
    """A block in which tensors are fake and calls are counted: yields (kept, counted).

    kept: a dict that is filled with the bytes of each storage that autograd keeps for backward, but for the
    parameters of `model`, when the block ends. counted: a `trace`. A DTensor counts with its local part.
    """
    kept = {}

    def keep(t):
        storage = _local(t).untyped_storage()
        kept[private.storage_of(_local(t))] = storage.nbytes()
        return t

    saved = torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t)
    with private.fake_tensors(), trace() as counted, saved:
        yield kept, counted
    for p in model.parameters():
        kept.pop(private.storage_of(_local(p)), None)


def held_by(model, optimizer):
    """Bytes of this rank's weights, gradients and moments: three numbers, of shards where it has those."""
    weights = list(model.parameters())
    moments = [t for state in optimizer.state.values() for t in state.values() if t.dim()]
    kinds = weights, [p.grad for p in weights], moments
    return [sum(_local(t).nbytes for t in kind) for kind in kinds]


def _local(t):
    return t.to_local() if hasattr(t, "to_local") else t
