"""The exercises of the chapter on matrix optimizers."""

import torch
import torch.distributed as dist

from allranks import launch
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.parallel.muon import orthonormalise
from allranks.trace import trace

RANKS, ROWS, COLUMNS = 4, 12, 40


@exercise
def on_columns(answer):
    """`answer(part)` runs on four ranks and returns the rank's columns of the orthonormalised matrix."""
    matrix = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))
    expected = orthonormalise(matrix).float()

    def on_rank():
        part = matrix.chunk(RANKS, dim=1)[dist.get_rank()].clone()
        with trace() as counted:
            found = answer(part.clone())
        alone = torch.allclose(found.float(), orthonormalise(part).float(), atol=0.1)
        return found.float(), counted.bytes.total(), dict(counted.calls), alone

    ranks = launch(on_rank, world_size=RANKS, backend="gloo")
    assert not ranks[0][3], "Each rank orthonormalised its own columns without seeing the others."
    shape = tuple(ranks[0][0].shape)
    assert shape == (ROWS, COLUMNS // RANKS), (
        f"A rank returns shape {shape}; expected {(ROWS, COLUMNS // RANKS)}, its part."
    )
    found = torch.cat([part for part, *_ in ranks], dim=1)
    apart = (found - expected).norm() / expected.norm()
    assert apart < 0.1, (
        f"Together the columns are off by {apart:.0%}. Which product does a rank compute only in part?"
    )
    _, sent, calls, _ = ranks[0]
    assert set(calls) == {"all_reduce"}, (
        f"The result is right, but it uses {', '.join(sorted(calls))}; sums are enough."
    )
    most = 4 * (5 * ROWS * ROWS + 1)
    assert sent <= most, f"The result is right, but its messages have {sent} bytes; {most} are enough."
    return "Six sums are enough, and no rank sees the whole matrix."


@exercise
def bound(answer):
    """`answer`: Muon's bytes over AdamW's, if gradients, momentum and weights all travel in two bytes."""
    is_number(answer)
    assert abs(answer - 1.25) > 0.005, "That is for gradients and weights in four bytes."
    assert abs(answer - 1.75) > 0.005, "That gathers the momentum in more bytes than Newton–Schulz reads."
    assert abs(answer - 0.75) > 0.005, "That compares with AdamW in four bytes; here AdamW sends two as well."
    assert abs(answer - 1.5) < 0.005, (
        f"{answer:g} is not right: how many messages does AdamW send, and how many does Muon?"
    )
    return "1.5: the less everything else sends, the more the gather matters."
