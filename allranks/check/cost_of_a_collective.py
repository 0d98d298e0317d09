"""The exercises of the chapter What a collective costs."""

import torch
import torch.distributed as dist

from allranks import collectives, hardware, launch
from allranks.check import exercise
from allranks.check.stubs import is_number

SECONDS = 8.0
ELEMENTS = 48


@exercise
def crossover(answer):
    """`answer`: bytes from which on a ring of 8 ranks beats recursive doubling, on NVLink 4."""
    is_number(answer)
    link = hardware.link("nvlink-4")
    expected = collectives.crossover("all_reduce", "ring", "recursive_doubling", 8, link.α, link.β)
    assert abs(answer / (link.α / link.β) - 1) > 0.01, (
        "That is α/β, where the two terms of a single message are equal."
    )
    assert abs(answer * 1e6 / expected - 1) > 0.01, "Give the answer in bytes, not in megabytes."
    assert abs(answer / expected - 1) <= 0.01, (
        f"At {answer:,.0f} bytes the two times differ: a ring takes 14 rounds and sends 1.75 messages; "
        "recursive doubling, 3 and 3."
    )
    return f"{expected / 1e6:.1f} MB: NVLink is so fast that a message of some megabytes is still small."


@exercise
def buckets(answer):
    """`answer`: how many times longer 300 all-reduces of 1 MB take than one of 300 MB, on 64 ranks."""
    is_number(answer)
    links = hardware.protocols("infiniband-ndr")

    def seconds(nbytes, links):
        return collectives.by_protocol("all_reduce", "ring", nbytes, 64, links)[1]

    expected = 300 * seconds(1e6, links) / seconds(300e6, links)
    simple = 300 * seconds(1e6, links[-1:]) / seconds(300e6, links[-1:])
    assert abs(answer - 300) > 1, "The latency is 300 times as large, but the bytes are the same."
    assert abs(answer * expected - 1) > 0.01, "That is the inverse: how much *shorter* the large one is."
    assert abs(answer / simple - 1) > 0.01, "That is with Simple for both; a single tensor travels under LL."
    assert abs(answer / expected - 1) <= 0.01, (
        f"{answer:.3g} times is not right: how often does each way pay the latency, and how often the bytes?"
    )
    return f"{expected:.0f} times, mostly because 300 calls pay the latency instead of one."


@exercise
def chain(answer):
    """`answer(t, k, transfer)` copies rank 0's `t` along a chain of ranks, in `k` pieces."""
    path = []

    def transfer(out=None, to=None, into=None, source=None):
        rank = dist.get_rank()
        assert to in (None, rank + 1), f"rank {rank} sends to rank {to}; expected the next rank"
        moves = [dist.P2POp(dist.isend, out.contiguous(), to)] if to is not None else []
        if source is not None:
            moves.append(dist.P2POp(dist.irecv, into, source))
        for work in dist.batch_isend_irecv(moves):
            work.wait()
        path.append(max(move.tensor.nbytes for move in moves))

    def on_rank(k):
        t = torch.arange(ELEMENTS) + 1 if dist.get_rank() == 0 else torch.zeros(ELEMENTS, dtype=torch.int64)
        path.clear()
        answer(t, k, transfer)
        return t, path

    for p, k in ((4, 1), (2, 4), (4, 6), (3, 12)):
        on_ranks = launch(on_rank, k, world_size=p, timeout=SECONDS)
        case = f"With {p} ranks and {k} piece{'s' * (k > 1)},"
        assert any(rounds for _, rounds in on_ranks), "Nothing was sent yet."
        for rank, (t, rounds) in enumerate(on_ranks):
            wrong = int((t != torch.arange(ELEMENTS) + 1).sum())
            assert not wrong, f"{case} {wrong} of {ELEMENTS} elements on rank {rank} differ from rank 0's."
            allowed = k + (0 < rank < p - 1)
            assert len(rounds) <= allowed, (
                f"{case} rank {rank} took part in {len(rounds)} rounds, and {allowed} are enough: it can "
                "pass a piece on while it receives the next."
            )
            assert max(rounds) * k == t.nbytes, (
                f"{case} rank {rank} sent {max(rounds)} bytes in a round; expected one piece at a time."
            )
    return "The last of p ranks has everything after p−2+k rounds, for p = 2, 3 and 4."


@exercise
def pieces(answer):
    """`answer`: the number of pieces in which 1 GB gets fastest along a chain of 64 ranks, on InfiniBand."""
    is_number(answer)
    link = hardware.link("infiniband-ndr")
    assert answer >= 1, f"{answer:g} is not a number of pieces: there is at least one."

    def seconds(k):
        return collectives.pipelined_ring(1e9, 64, k).seconds(link.α, link.β)

    best = min(range(1, 1000), key=seconds)
    assert abs(answer / best - 1) < 0.01, (
        f"{answer:.0f} pieces take {seconds(round(answer)) / seconds(best):.3g} times as long as the "
        "best: few large pieces keep ranks waiting, and many small ones pay latencies."
    )
    return f"{best} pieces: {seconds(best) / seconds(1) * 63:.2f} times as long as one message, not 63 times."


@exercise
def between_nodes(answer):
    """`answer`: the fraction of a message that each of 4 × 8 ranks sends to other nodes."""
    is_number(answer)
    expected = collectives.hierarchical_all_reduce(1.0, 8, 4).inter.nbytes
    assert abs(answer - 2 * 31 / 32) > 1e-6, "That is a flat ring of 32 ranks."
    assert abs(answer - 2 * 3 / 4) > 1e-6, "That is what a whole node sends; its 8 ranks share it."
    assert abs(answer - expected / 2) > 1e-6, "An all-reduce goes around twice."
    assert abs(answer / expected - 1) <= 0.01, (
        f"{answer:g} is not right: how much does a rank all-reduce between the nodes, and with how many "
        "others?"
    )
    return f"{expected} of the message: its own eighth, all-reduced; its neighbours send the other seven."
