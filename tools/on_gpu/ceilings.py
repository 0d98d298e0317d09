"""How fast can this device be? The best of copies, of matrix products, of all-reduces."""

from contextlib import contextmanager

from allranks import collectives

from . import timing

# element type, and what `set_float32_matmul_precision` lets a product in fp32 do
DTYPES = {
    "bf16": ("bfloat16", "highest"),
    "fp16": ("float16", "highest"),
    "tf32": ("float32", "high"),
    "fp32": ("float32", "highest"),
}


@contextmanager
def float32_precision(name):
    """Compute products in fp32 with this precision ("highest", "high"), and as before afterwards."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def copy_ceiling(device, sizes):
    """Bytes read and written a second by a copy on the device: [(bytes of the tensor, bytes a second)]."""
    import torch

    found = []
    for nbytes in sizes:
        source = torch.ones(nbytes, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        taken = timing.best(lambda a=target, b=source: a.copy_(b), device)
        found.append((nbytes, 2 * nbytes / taken))
        del source, target
    return found


def matmul_ceiling(device, sizes, dtypes=tuple(DTYPES)):
    """FLOP/s of square products of random numbers: [(dtype, size, FLOP/s)]."""
    import torch

    found = []
    for name in dtypes:
        element, precision = DTYPES[name]
        with float32_precision(precision):
            for size in sizes:
                a, b = (torch.randn(size, size, device=device).to(getattr(torch, element)) for _ in range(2))
                out = torch.empty_like(a)
                taken = timing.best(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), device)
                found.append((name, size, 2 * size**3 / taken))
                del a, b, out
    return found


def best_of(found):
    """The largest FLOP/s of each dtype: {dtype: (FLOP/s, size)}."""
    return {
        name: max((rate, size) for dtype, size, rate in found if dtype == name)
        for name in dict.fromkeys(dtype for dtype, *_ in found)
    }


def all_reduce_seconds(sizes):
    """On a rank: seconds of all-reduces of fp32 tensors of so many bytes, [(bytes, [seconds a round])]."""
    import torch
    import torch.distributed as dist

    from allranks.model import rank_device

    device, found = torch.device(rank_device()), []
    for nbytes in sizes:
        t = torch.ones(nbytes // 4, device=device)
        dist.all_reduce(t)
        rounds = [timing.seconds(lambda t=t: dist.all_reduce(t), device, repeats=10) for _ in range(5)]
        found.append((4 * t.numel(), rounds))
        t.fill_(1.0)  # the sums of all the rounds grow beyond fp32
        dist.all_reduce(t)
        assert t[0].item() == dist.get_world_size()
    return found


def bus_bandwidths(on_ranks):
    """What all ranks measured, as [(bytes, seconds, bytes a second of the bus)] (nccl-tests' factor).

    The seconds are the least over the rounds of the slowest rank. One rank sends nothing, and has 0.
    """
    rows = []
    for measured in zip(*on_ranks, strict=True):
        nbytes = measured[0][0]
        taken = min(timing.slowest([rounds for _, rounds in measured]))
        rows.append((nbytes, taken, collectives.bus_bandwidth("all_reduce", nbytes, len(on_ranks), taken)))
    return rows
