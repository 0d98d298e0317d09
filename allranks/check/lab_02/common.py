"""What do the tasks of the lab share? Models, devices, and what is close enough."""

import torch
import torch.distributed as dist

from allranks.check.labs import on_ranks
from allranks.launch import LaunchError
from allranks.model import GPT

RATE = 0.0123  # a learning rate that nobody has by accident


def device_of_rank():
    return "cuda" if "nccl" in dist.get_backend() else "cpu"


def plain(found):
    return found.detach() if isinstance(found, torch.Tensor) else found


def new_gpt(seed, kind=GPT):
    torch.manual_seed(seed)
    return kind(layers=1, hidden=16, heads=2)


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()


def is_close(found, expected, rtol=1e-3):
    return bool((found - expected).norm() <= rtol * expected.norm() + 1e-7)


def quoted(found):
    """A number or None as it is; of anything else, which may take lines to print, the type."""
    return repr(found) if found is None or isinstance(found, int | float) else f"a {type(found).__name__}"


def multiple_of(found, expected):
    """How many times `expected` is `found`? None if it is no multiple of it."""
    factor = float((found * expected).sum() / expected.square().sum())
    return factor if factor and is_close(found, factor * expected) else None


def all_on_ranks(hint, test, *args, **options):
    """`on_ranks`, with `hint` where ranks wait for each other."""
    try:
        return on_ranks(test, *args, **options)
    except LaunchError as failure:
        if "raised" in str(failure) or "exited" in str(failure):
            raise
        raise AssertionError(f"Your function did not come to its end: {failure}. {hint}") from None
