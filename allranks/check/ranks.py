"""The exercises of the chapter Ranks."""

import torch
import torch.distributed as dist

from allranks import collectives, launch
from allranks.check import exercise
from allranks.check.stubs import is_number, is_returned
from allranks.trace import trace

SECONDS = 4.0


@exercise
def swap(answer):
    """`answer(tensor)` on two ranks returns the other rank's tensor, of the same shape."""

    def on_rank():
        return answer(torch.arange(4) + 10 * dist.get_rank())

    swapped = launch(on_rank, world_size=2, timeout=SECONDS)
    is_returned(swapped[0], "the received tensor")
    for rank in range(2):
        expected = torch.arange(4) + 10 * (1 - rank)
        assert torch.equal(swapped[rank], expected), (
            f"Rank {rank} returned {swapped[rank].tolist()}; expected {expected.tolist()}."
        )
    return "Each rank holds what the other had."


@exercise
def mean(answer):
    """`answer(value)` returns on rank 0 the mean of all ranks' values, and None on the others."""
    for world_size in (2, 4):
        means = launch(lambda: answer(float(dist.get_rank())), world_size=world_size, timeout=SECONDS)
        expected = (world_size - 1) / 2
        assert means[0] is not None, "Rank 0 returned None; it should return the mean."
        assert float(means[0]) == expected, (
            f"With {world_size} ranks, rank 0 returned {float(means[0])}; the mean is {expected}."
        )
        assert all(m is None for m in means[1:]), "Ranks other than 0 should return None."
    return "All ranks took part in the sum, and rank 0 alone returned it."


@exercise
def squares(answer):
    """`answer(numbers)` returns the squares of `numbers`, in order, computed on four ranks."""
    numbers = list(range(12))
    got = answer(numbers)
    is_returned(got)
    assert got != [], "The list is empty: in which process did `done` grow?"
    expected = [n * n for n in numbers]
    assert sorted(got) == expected, f"These are not the 12 squares: {got}."
    assert got == expected, f"All squares are there, but not in order: {got}. Rank r worked on numbers[r::4]."
    return "All 12 squares, from four ranks, are in order."


@exercise
def reduce(answer):
    """`answer(t)` leaves the sum of all ranks' tensors on rank 0, by a tree of sends and receives."""

    def on_rank():
        t = torch.arange(3) + dist.get_rank()
        with trace() as counted:
            answer(t)
        return t, counted.calls

    for world_size in (2, 3, 4, 8):
        on_ranks = launch(on_rank, world_size=world_size, timeout=SECONDS)
        t, calls = on_ranks[0]
        expected = sum(torch.arange(3) + rank for rank in range(world_size))
        rounds = collectives.tree_broadcast_rounds(world_size)
        assert any(calls for _, calls in on_ranks), "Nothing was sent yet."
        got = f"With {world_size} ranks, rank 0 holds {t.tolist()}"
        assert torch.equal(t, expected), f"{got}; expected {expected.tolist()}."
        assert set(calls) <= {"recv"}, f"Rank 0 called {', '.join(sorted(calls))}; it should only receive."
        assert calls["recv"] == rounds, f"Rank 0 received {calls['recv']} times; {rounds} rounds are enough."
    return "Rank 0 has the sum, after as many rounds as a broadcast takes."


@exercise
def broadcast_rounds(answer):
    """`answer` is the number of rounds that a tree broadcast to 1024 ranks takes."""
    expected = collectives.tree_broadcast_rounds(1024)
    is_number(answer)
    assert answer != 1023, "That is the number of messages; many of them travel at the same time."
    assert answer == expected, (
        f"{answer} is not right: how many ranks know after one round, after two, after three?"
    )
    return f"{expected} rounds: 1 rank knows, then 2, 4, 8, … 1024."
