"""Which device and which part of a batch belong to a rank?"""

import os

import torch
import torch.distributed as dist

from allranks.check import exercise
from allranks.check.labs import drawn, groups_used, hidden, is_tensor, is_written, on_ranks

PLACES = (  # (rank, local rank, GPUs): not every machine has as many ranks as GPUs
    (5, 1, 4),
    (6, 6, 8),
    (5, 2, 4),
    (1, 1, 0),
)


def pretend_to_be(rank, local_rank, gpus):
    """Make torch tell this process that it is `rank`, on a machine with `gpus` GPUs."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(local_rank), WORLD_SIZE="8")
    for module in (torch.cuda, torch.accelerator):
        module.is_available = lambda: gpus > 0
        module.device_count = lambda: gpus
    torch.cuda.current_device = torch.accelerator.current_device_index = lambda: 0  # until one is set
    torch.accelerator.current_accelerator = lambda check_available=False: (
        torch.device("cuda") if gpus else None
    )
    dist.get_rank = lambda group=None: rank
    dist.get_world_size = lambda group=None: 8


def _place(draw):
    """One more place: some rank of the second machine."""
    gpus = draw.choice((2, 3, 4))
    local_rank = draw.randrange(gpus)
    return [(gpus + local_rank, local_rank, gpus)]


@exercise
def my_device(answer):
    """`answer()` is the `torch.device` of the rank that calls it."""
    is_written(answer)

    def on_rank(rank, local_rank, gpus):
        pretend_to_be(rank, local_rank, gpus)
        device = answer()
        return str(device) if isinstance(device, torch.device) else (device,)

    for rank, local_rank, gpus in (*PLACES, *hidden(_place)):
        device = on_ranks(on_rank, rank, local_rank, gpus, world_size=1, backend="gloo")[0]
        where = f"Rank {rank}, local rank {local_rank}, on a machine with {gpus or 'no'} GPUs:"
        assert isinstance(device, str), f"{where} {device[0]!r} is not a torch.device."
        assert gpus or device == "cpu", f"{where} {device} does not exist here; use the CPU."
        assert not gpus or device != "cpu", f"{where} expected cuda:{local_rank}, got the CPU."
        assert device != f"cuda:{rank}" or rank < gpus, (
            f"{where} {device} does not exist. RANK counts across all machines, GPU numbers within one."
        )
        assert device != "cuda", (
            f"{where} 'cuda' without a number is the same GPU on every rank until that rank chooses one."
        )
        assert not gpus or device == f"cuda:{local_rank}", (
            f"{where} expected cuda:{local_rank}; {device} belongs to another rank."
            + (" Until a rank chooses a GPU, its current device is cuda:0." if device == "cuda:0" else "")
        )
    return "Each rank has a device of its own: its GPU on its machine, or the CPU."


@exercise
def my_part(answer):
    """`answer(batch)` is the part of `batch` that belongs to the rank that calls it."""
    is_written(answer)

    def on_rank(*batches):
        already = len(groups_used())
        return [answer(batch) for batch in batches], len(groups_used()) - already

    more = hidden(lambda draw: [(draw.choice((2, 3, 6)), (draw.randrange(15, 40), draw.randrange(1, 6)))])
    for world_size, counts in ((4, (8, 10, 3)), (5, (14 + drawn(0) % 5, 7)), *more):
        batches = [torch.arange(count * 6).view(count, 2, 3) for count in counts]
        returned = on_ranks(on_rank, *batches, world_size=world_size)
        for number, batch in enumerate(batches):
            _are_parts([parts[number] for parts, _ in returned], batch)
        for rank, (_, messages) in enumerate(returned):
            assert not messages, (
                f"The parts are right, but rank {rank} entered {messages} collectives for them: its rank and "
                "the number of ranks tell it which rows are its own."
            )
    return "Every row belongs to one rank, and sizes differ by at most one row."


def _are_parts(parts, batch):
    """Fail unless `parts`, one of each rank, are `batch` in the order of ranks and of nearly equal size."""
    world_size, count = len(parts), len(batch)
    case = f"With {count} rows on {world_size} ranks"
    for rank, part in enumerate(parts):
        rows = len(part) if isinstance(part, torch.Tensor) and part.ndim else 0
        is_tensor(part, f"{case}, the part of rank {rank}", (rows, *batch.shape[1:]), batch.dtype)
    sizes = [len(part) for part in parts]
    listed = ", ".join(map(str, sizes))
    assert sum(sizes) >= count, (
        f"{case}, the parts have {listed} rows: {count - sum(sizes)} belong to no rank."
    )
    assert sum(sizes) <= count, f"{case}, the parts have {listed} rows: some rows are taken twice."
    assert torch.equal(torch.cat(parts), batch), (
        f"{case}, the parts of ranks 0 to {world_size - 1}, one after another, are not the batch."
    )
    assert max(sizes) - min(sizes) <= 1, (
        f"{case}, the parts have {listed} rows: sizes may differ by one, or ranks wait for the largest."
    )
