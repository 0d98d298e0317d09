"""The exercises of the chapter All-reduce."""

import torch
import torch.distributed as dist

from allranks import collectives, launch
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.trace import trace

SECONDS = 8.0
WORLD_SIZES = (2, 3, 5, 6)


def only_messages(calls):
    others = sorted({kind for counted in calls for kind in counted} - {"send", "recv", "barrier"})
    assert not others, f"It calls {', '.join(others)}: only messages between two ranks are allowed here."


@exercise
def ring(answer):
    """`answer(t)` leaves the sum of all ranks' tensors in `t`, and sends what a ring sends."""

    def on_rank(sizes):
        return [one_size(elements) for elements in sizes]

    def one_size(elements):
        rank, p = dist.get_rank(), dist.get_world_size()
        t = 10**rank + torch.arange(elements) * 10**p * (rank == 0)  # a digit a rank; the place in front
        with trace() as counted:
            answer(t)
        return t, counted.calls, counted.sent

    for p in WORLD_SIZES:
        sizes = (p, 2 * p + 1)
        for elements, on_ranks in zip(sizes, zip(*launch(on_rank, sizes, world_size=p, timeout=SECONDS))):
            only_messages([calls for _, calls, _ in on_ranks])
            sent = [sent for *_, sent in on_ranks]
            assert any(sent), "Nothing was sent yet."
            here = f"With {p} ranks and {elements} elements,"
            for rank, (t, _, _) in enumerate(on_ranks):
                assert t.shape == (elements,), f"{here} the shape of rank {rank}'s tensor has changed."
                for place, value in enumerate(t.tolist()):
                    belongs, summands = divmod(value, 10**p)
                    assert summands == int("1" * p), (
                        f"{here} element {place} of rank {rank} has the digits {summands:0{p}}; expected "
                        f"{'1' * p}, a 1 for each rank, rank 0's on the right."
                    )
                    assert belongs == place, (
                        f"{here} element {place} of rank {rank} holds the complete sum of element {belongs}."
                    )
            enough, most = 2 * (p - 1) * 8 * elements, 2 * 8 * (elements - elements // p)
            assert sum(sent) <= enough, (
                f"The sums are right, but {p} ranks send {sum(sent)} bytes, and 2(p-1)n = {enough} are "
                "enough."
            )
            assert max(sent) <= most, (
                f"The sums are right, but one of {p} ranks sends {max(sent)} bytes; on a ring, each sends "
                f"at most {most}."
            )
    return f"Every rank is in every sum once, with {', '.join(map(str, WORLD_SIZES))} ranks."


@exercise
def messages(answer):
    """`answer`: the messages about one element that a reduce-scatter on 8 ranks takes at least."""
    is_number(answer)
    assert answer != 14, "That is an all-reduce; here the other ranks do not need the sum."
    assert answer != 8, "The rank that computes the sum already has its own number."
    assert answer != 3, "That may be the number of rounds; each round has several messages."
    assert answer == 7, f"{answer} is not right: which ranks have to send at least one message?"
    return "7: one from each of the other ranks, and none to tell them the sum."


@exercise
def gradients(answer):
    """`answer`: bytes that each of 64 ranks sends at least to all-reduce 7e9 gradients of 2 bytes."""
    is_number(answer)
    expected = collectives.ring_all_reduce_bytes(14e9, 64)
    assert abs(answer / expected - 0.5) > 0.005, (
        "That is half of the bytes: did you count only a reduce-scatter, or 1 byte a gradient?"
    )
    assert abs(answer / 14e9 - 1) > 0.002, "That is the size of the gradients; a rank has to send more."
    assert abs(answer / 28e9 - 1) > 0.002, "Almost: 2n is the limit for many ranks; here there are 64."
    assert abs(answer * 1e9 / expected - 1) > 0.002, "Give the answer in bytes, not in gigabytes."
    assert abs(answer / expected - 1) <= 0.002, (
        f"{answer:.4g} is not right: what share of 14 GB does each half of an all-reduce send?"
    )
    return f"{expected / 1e9:.1f} GB from each rank, at every step."
