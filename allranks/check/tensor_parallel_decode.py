"""The exercises of the chapter on tensor-parallel decode."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from allranks import hardware, inference, launch
from allranks.check import exercise
from allranks.trace import trace
from allranks.transformer import PRESETS

SECONDS = 20.0
MODEL, CONTEXT, GPUS = PRESETS["llama3-70b"], 2048, 8
BATCHES = tuple(2**k for k in range(10))
LIMITS = (0.008, 0.020, 0.050)  # seconds a token
TOKENS, HIDDEN, INNER = 6, 32, 32  # of the feed-forward on 2 × 2 ranks


def _fits(ranks, sequences):
    capacity = hardware.accelerator("h100").memory
    return sequences <= inference.largest_batch(inference.tensor_slice(MODEL, ranks), CONTEXT + 1, capacity)


def _token(ranks, sequences):
    return sum(inference.decode_seconds(MODEL, ranks, "h100", "nvlink-4", CONTEXT, sequences))


def _rate(ranks, sequences):
    return GPUS // ranks * sequences / _token(ranks, sequences)


@exercise
def objective(answer):
    """`answer(limit)`: (ranks, sequences) of each copy on eight H100s, with `limit` seconds a token."""
    for limit in LIMITS:
        plan, where = answer(limit), f"With {limit * 1e3:.0f} ms a token"
        assert isinstance(plan, tuple) and len(plan) == 2, (
            f"{where}, expected two numbers, (ranks, sequences); got {plan!r}."
        )
        ranks, sequences = plan
        assert ranks in (1, 2, 4, 8), f"{where}, copies of {ranks} ranks do not fill {GPUS} GPUs evenly."
        assert _fits(ranks, sequences), (
            f"{where}, {sequences} sequences do not fit beside the weights on {ranks} ranks: use "
            "`largest_batch`."
        )
        token, rate = _token(ranks, sequences), _rate(ranks, sequences)
        assert token <= limit, f"{where}, {plan} is too slow: a token takes {token * 1e3:.1f} ms."
        plans = ((t, b) for t in (1, 2, 4, 8) for b in BATCHES)
        best = max((p for p in plans if _fits(*p) and _token(*p) <= limit), key=lambda p: _rate(*p))
        assert rate >= _rate(*best), (
            f"{where}, {plan} writes {rate:,.0f} tokens a second, but another plan writes "
            f"{_rate(*best):,.0f}. Did you count the copies?"
        )
    return "Eight ranks when tokens are urgent, and two copies of four when there is time."


def _data():
    draw = torch.Generator().manual_seed(0)
    shapes = ((TOKENS, HIDDEN), (HIDDEN, INNER), (INNER, HIDDEN))
    return [torch.randn(shape, generator=draw) for shape in shapes]


@exercise
def two_d(answer):
    """`answer(x, up, down, row, column)`: this rank's slice of GeLU(x·up)·down, blocks of which it has."""

    def on_rank():
        rank = dist.get_rank()
        i, j = divmod(rank, 2)
        rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        x, up, down = _data()
        x = x.chunk(4, 1)[rank].contiguous()
        up, down = up.chunk(2, 0)[i].chunk(2, 1)[j], down.chunk(2, 0)[j].chunk(2, 1)[i]
        with trace() as counted:
            y = answer(x, up.contiguous(), down.contiguous(), rows[i], columns[j])
        dist.barrier()
        return y, counted.sent

    x, up, down = _data()
    right = (F.gelu(x @ up) @ down).chunk(4, 1)
    enough = 4 * inference.stationary_elements(TOKENS, HIDDEN, INNER, 2, 2)
    for rank, (y, sent) in enumerate(launch(on_rank, world_size=4, timeout=SECONDS)):
        shape = (TOKENS, HIDDEN // 4)
        assert torch.is_tensor(y) and y.shape == shape, (
            f"Rank {rank} returned {getattr(y, 'shape', y)}; expected its slice of the output, {shape}."
        )
        assert torch.allclose(y, right[rank], atol=1e-3), (
            f"Rank {rank}'s slice differs from one process's. Which ranks hold partial sums of the same "
            "columns before GeLU, and which after `down`?"
        )
        assert sent <= enough, (
            f"The output is right, but rank {rank} sends {sent:,.0f} bytes; {enough:,.0f} are enough: "
            "gather and sum only within the group that needs it, and only its slice."
        )
    line = 4 * inference.stationary_elements(TOKENS, HIDDEN, INNER, 1, 4)
    return (
        f"The slices equal one process's, and each rank sends {enough:,.0f} bytes; 1D would send {line:,.0f}."
    )
