"""The exercises of the chapter Fewer rounds."""

import torch
import torch.distributed as dist

from allranks import collectives, launch
from allranks.check import exercise
from allranks.check.all_reduce import SECONDS, only_messages
from allranks.check.stubs import is_filled, is_returned
from allranks.trace import trace


@exercise
def gather(answer):
    """`answer(mine)` returns all ranks' tensors in order, after ⌈log2 p⌉ rounds of p−1 times its bytes."""

    def on_rank(sizes):
        return [one_size(elements) for elements in sizes]

    def one_size(elements):
        mine = torch.arange(elements) + 100 * dist.get_rank()
        with trace() as counted:
            whole = answer(mine)
        return whole, counted.calls, counted.sent

    for p in (2, 3, 4, 5, 8):
        sizes = (1, 3)
        for elements, on_ranks in zip(sizes, zip(*launch(on_rank, sizes, world_size=p, timeout=SECONDS))):
            only_messages([calls for _, calls, _ in on_ranks])
            expected = torch.cat([torch.arange(elements) + 100 * rank for rank in range(p)])
            for rank, (whole, _, _) in enumerate(on_ranks):
                is_returned(whole, "what all ranks had")
                assert isinstance(whole, torch.Tensor), (
                    f"Rank {rank} returned {whole!r:.60}; expected a tensor."
                )
                all_there = sorted(whole.flatten().tolist()) == expected.tolist()
                assert torch.equal(whole, expected), (
                    f"With {p} ranks, rank {rank} returned {whole.tolist()}; expected {expected.tolist()}."
                    + " All parts are there, but not in rank order." * all_there
                )
            rounds = collectives.cost("all_gather", "bruck", 8 * elements * p, p).rounds
            for rank, (_, calls, sent) in enumerate(on_ranks):
                assert max(calls["send"], calls["recv"]) <= rounds, (
                    f"All parts are in order. But with {p} ranks, {rounds} rounds are enough, and rank "
                    f"{rank} sent {calls['send']} messages and received {calls['recv']}."
                )
                assert sent <= 8 * elements * (p - 1), (
                    f"All parts are in order, in few rounds. But with {p} ranks rank {rank} sent "
                    f"{sent:.0f} bytes; {8 * elements * (p - 1)} are enough: does the last round need "
                    "them all?"
                )
    return "It sends a ring's bytes in a tree's rounds, for 2, 3, 4, 5 and 8 ranks."


@exercise
def thousand(answer):
    """`answer`: rounds of halving–doubling on 1000 ranks, and what its busiest rank sends, in tensors."""
    assert isinstance(answer, (tuple, list)) and len(answer) == 2, (
        "Give two numbers: rounds, and a multiple of n."
    )
    for part in answer:
        is_filled(part, "numbers")
    rounds, multiple = answer
    expected = collectives.cost("all_reduce", "halving_doubling", 512e6, 1000).rounds
    most = max(collectives.sent("all_reduce", "halving_doubling", 512, 1000)) / 512
    assert rounds != 18, (
        "18 rounds are halving and doubling on 512 ranks; the other 488 have to be folded in and out."
    )
    assert rounds != 1998, "Those are the ring's rounds."
    assert rounds == expected, f"{rounds:g} rounds is not right: what is the largest power of two up to 1000?"
    assert abs(multiple - 2 * 511 / 512) > 1e-3 and abs(multiple - 2 * 999 / 1000) > 1e-3, (
        "Almost: a rank that stands in for its neighbour also sends it the result."
    )
    assert abs(multiple - most) < 2e-3, (
        f"{multiple:g} n is not right: add up what a rank sends while it halves and doubles."
    )
    return f"{expected} rounds and {most:.3g} n; a ring sends 2 n."
