"""What the tasks of the lab share: models, devices, and how close is close enough."""

import torch
import torch.distributed as dist

from allranks.check.labs import drawn, on_ranks
from allranks.launch import LaunchError
from allranks.model import GPT

RATE = 0.0123  # a learning rate that nobody has by accident


def device_of_rank():
    return "cuda" if "nccl" in dist.get_backend() else "cpu"


def plain(value):
    return value.detach() if isinstance(value, torch.Tensor) else value


def new_gpt(seed, kind=GPT):
    torch.manual_seed(drawn(seed))
    return kind(layers=1, hidden=16, heads=2)


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()


def is_close(value, expected, rtol=1e-3):
    return bool((value - expected).norm() <= rtol * expected.norm() + 1e-7)


def quoted(value):
    """A number or None as it is; of anything else, which may take lines to print, the type."""
    return repr(value) if value is None or isinstance(value, int | float) else f"a {type(value).__name__}"


def multiple_of(value, expected):
    """The factor by which `value` is a multiple of `expected`, or None if it is not one."""
    factor = float((value * expected).sum() / expected.square().sum())
    return factor if factor and is_close(value, factor * expected) else None


def all_on_ranks(hint, test, *args, **options):
    """`on_ranks`; adds `hint` if ranks wait for each other."""
    try:
        return on_ranks(test, *args, **options)
    except LaunchError as failure:
        if "raised" in str(failure) or "exited" in str(failure):
            raise
        raise AssertionError(f"Your function did not finish: {failure}. {hint}") from failure
