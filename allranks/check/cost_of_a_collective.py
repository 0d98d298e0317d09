"""The exercises of the chapter What a collective costs."""

import torch
import torch.distributed as dist

from allranks import collectives, hardware, launch
from allranks.check import exercise

SECONDS = 8.0
ELEMENTS = 48


def _number(answer):
    assert answer is not None, "Put a number in the place of None."
    assert isinstance(answer, int | float) and not isinstance(answer, bool), f"{answer!r} is not a number."


@exercise
def crossover(answer):
    """`answer`: bytes from which on a ring of 8 ranks beats recursive doubling, on NVLink 4."""
    _number(answer)
    link = hardware.link("nvlink-4")
    expected = collectives.crossover("all_reduce", "ring", "recursive_doubling", 8, link.α, link.β)
    assert abs(answer / (link.α / link.β) - 1) > 0.01, (
        "That is α/β, where a single message's two terms are equal."
    )
    assert abs(answer * 1e6 / expected - 1) > 0.01, "In bytes, not in megabytes."
    assert abs(answer / expected - 1) <= 0.01, (
        f"{answer:,.0f} bytes cost a ring and recursive doubling different times: "
        "14 and 3 rounds, 1.75 and 3 times the message."
    )
    return f"{expected / 1e6:.1f} MB: NVLink is so fast that a message of some megabytes is still small."


@exercise
def buckets(answer):
    """`answer`: how many times longer 300 all-reduces of 1 MB take than one of 300 MB, on 64 ranks."""
    _number(answer)
    link = hardware.link("infiniband-ndr")

    def seconds(nbytes):
        return collectives.seconds("all_reduce", "ring", nbytes, 64, link.α, link.β)

    expected = 300 * seconds(1e6) / seconds(300e6)
    assert abs(answer - 300) > 1, "300 times the latency, but the bytes are the same."
    assert abs(answer * expected - 1) > 0.01, "That is how many times *shorter* the large one is."
    assert abs(answer / expected - 1) <= 0.01, (
        f"Not {answer:.3g} times: each call pays 2(p-1) latencies, and all calls together 300 MB."
    )
    return f"{expected:.0f} times, all of it latency: 300 calls pay it, or one."


@exercise
def halving_doubling(answer):
    """`answer(t, transfer)` leaves the sum in `t`, in 2·log2 p rounds that carry 2(p−1)/p of its bytes."""
    path = []

    def transfer(out=None, to=None, into=None, source=None):
        moves = [dist.P2POp(dist.isend, out.contiguous(), to)] if to is not None else []
        if source is not None:
            moves.append(dist.P2POp(dist.irecv, into, source))
        for work in dist.batch_isend_irecv(moves):
            work.wait()
        path.append(max(move.tensor.nbytes for move in moves))

    def on_rank():
        t = torch.arange(ELEMENTS) * (dist.get_rank() + 1)
        path.clear()
        answer(t, transfer)
        return t, path

    for p in (2, 4, 8):
        on_ranks = launch(on_rank, world_size=p, timeout=SECONDS)
        assert any(rounds for _, rounds in on_ranks), "Nothing was sent yet."
        expected = torch.arange(ELEMENTS) * (p * (p + 1) // 2)
        for rank, (t, _) in enumerate(on_ranks):
            wrong = int((t != expected).sum())
            assert not wrong, (
                f"With {p} ranks, {wrong} of {ELEMENTS} elements of rank {rank} are not the sum."
            )
        cost = collectives.cost("all_reduce", "halving_doubling", ELEMENTS * 8, p)
        for rank, (_, rounds) in enumerate(on_ranks):
            assert len(rounds) == cost.rounds, (
                f"The sum is right, but with {p} ranks it takes 2·log2 p = {cost.rounds} rounds, "
                f"and rank {rank} counted {len(rounds)}."
            )
            assert sum(rounds) == cost.nbytes, (
                f"The sum is right, but with {p} ranks rank {rank} sent {sum(rounds)} bytes, "
                f"where {cost.nbytes:.0f} are enough: swap halves, then halves of halves."
            )
    return "A ring's bytes in twice a tree's height, for 2, 4 and 8 ranks."


@exercise
def between_nodes(answer):
    """`answer`: the fraction of a message that each of 4 × 8 ranks sends to other nodes."""
    _number(answer)
    expected = collectives.hierarchical_all_reduce(1.0, 8, 4).inter.nbytes
    assert abs(answer - 2 * 31 / 32) > 1e-6, "That is a flat ring of 32 ranks."
    assert abs(answer - 2 * 3 / 4) > 1e-6, "That is what a whole node sends; its 8 ranks share it."
    assert abs(answer - expected / 2) > 1e-6, "An all-reduce goes around twice."
    assert abs(answer / expected - 1) <= 0.01, (
        f"Not {answer:g}: between nodes a rank all-reduces an eighth of the message with 3 others."
    )
    return (
        f"{expected} of the message; the seven eighths that neighbours hold do not leave through this rank."
    )
