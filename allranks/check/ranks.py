"""The exercises of the chapter Ranks."""

import torch
import torch.distributed as dist

from allranks import collectives, launch
from allranks.check import exercise

SECONDS = 4.0


@exercise
def swap(answer):
    """`answer(mine)` on two ranks returns the other rank's tensor, of the same shape."""

    def on_rank():
        return answer(torch.arange(4) + 10 * dist.get_rank())

    theirs = launch(on_rank, world_size=2, timeout=SECONDS)
    assert theirs[0] is not None, "The function returns nothing yet: return the tensor that came."
    for rank in range(2):
        expected = torch.arange(4) + 10 * (1 - rank)
        assert torch.equal(theirs[rank], expected), (
            f"Rank {rank} returned {theirs[rank].tolist()}, not {expected.tolist()}."
        )
    return "Each rank holds what the other had, and neither waited in vain."


@exercise
def mean(answer):
    """`answer(value)` returns on rank 0 the mean of all ranks' values, and None on the others."""
    for world_size in (2, 4):
        means = launch(lambda: answer(float(dist.get_rank())), world_size=world_size, timeout=SECONDS)
        expected = (world_size - 1) / 2
        assert means[0] is not None, "Rank 0 returned None: it is the one that has to return the mean."
        assert float(means[0]) == expected, (
            f"With {world_size} ranks the mean is {expected}, not {float(means[0])}."
        )
        assert all(m is None for m in means[1:]), "The other ranks have to return None."
    return "All ranks took part in the sum, and rank 0 alone returned it."


@exercise
def squares(answer):
    """`answer(numbers)` returns the squares of `numbers`, in order, computed on four ranks."""
    numbers = list(range(12))
    got = answer(numbers)
    assert got is not None, "The function returns nothing yet."
    assert got != [], (
        "The list is empty here: what a rank appends stays on the rank. Return it from the function."
    )
    expected = [n * n for n in numbers]
    assert sorted(got) == expected, f"These are not the 12 squares: {got}."
    assert got == expected, f"All there, but not in order: {got}. Rank r worked on numbers[r::4]."
    return "12 squares from four ranks, in order."


@exercise
def broadcast_rounds(answer):
    """`answer` is the number of rounds that a tree broadcast to 1024 ranks takes."""
    expected = collectives.tree_broadcast_rounds(1024)
    assert answer is not None, "Put a number in the place of None."
    assert answer != 1023, "That many messages are sent in all; but many of them at the same time."
    assert answer == expected, "Not that many: after each round twice as many ranks know."
    return f"{expected} rounds: 1 rank knows, then 2, 4, 8, … 1024."
