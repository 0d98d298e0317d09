"""The exercises of the chapter What NCCL forbids."""

import torch

from allranks import launch
from allranks.check import exercise
from allranks.check.stubs import is_returned

SECONDS = 20.0


@exercise
def halo(answer):
    """`answer(row)` on a ring of ranks returns the last number of the left row and the first of the right."""

    def on_rank():
        row = torch.rand(3)
        return row, answer(row.clone())

    for world_size in (3, 4, 2):  # with 2, both neighbours are one rank
        on_ranks = launch(on_rank, world_size=world_size, timeout=SECONDS, rules="nccl")
        for rank, (_, got) in enumerate(on_ranks):
            left, right = on_ranks[rank - 1][0], on_ranks[(rank + 1) % world_size][0]
            assert got is not None and len(got) == 2, (
                "Return two tensors: what came from the left and from the right."
            )
            for way, edge, expected in (("left", got[0], left[-1:]), ("right", got[1], right[:1])):
                edge = torch.as_tensor(edge).flatten()
                assert torch.equal(edge, expected), (
                    f"With {world_size} ranks, rank {rank} has {edge.tolist()} from the {way}; expected "
                    f"{expected.tolist()}."
                )
    return "Right on rings of 2, 3 and 4 ranks, and no rank waits for a send."


@exercise
def norm(answer):
    """`answer(gradients)` sums each gradient over the ranks, in place, and returns the norm of all sums."""

    def on_rank():
        before = [torch.rand(4), torch.rand(3, 2).T, torch.rand(2, 2)]
        gradients = [each.clone() for each in before]  # a clone keeps the strides
        return before, gradients, answer(gradients)

    for world_size in (2, 3):
        on_ranks = launch(on_rank, world_size=world_size, timeout=SECONDS, rules="nccl")
        sums = [sum(parts) for parts in zip(*[before for before, _, _ in on_ranks])]
        expected = torch.cat([each.flatten() for each in sums]).norm()
        for rank, (_, gradients, got) in enumerate(on_ranks):
            for place, (gradient, total) in enumerate(zip(gradients, sums)):
                assert torch.allclose(gradient, total), (
                    f"With {world_size} ranks, gradient {place} of rank {rank} is not the sum of all ranks."
                )
            is_returned(got)
            assert torch.allclose(torch.as_tensor(got), expected), (
                f"With {world_size} ranks, rank {rank} returned {float(got):.4f}; the norm is {expected:.4f}."
            )
    return "Every gradient holds its sum, and the norm is the norm of those sums."
