"""The exercises of the chapter on gradient compression."""

import torch

from allranks import compression
from allranks.check import exercise
from allranks.check.stubs import is_number

RANKS, DENSITY, VALUE, INDEX = 64, 0.005, 2, 4  # ranks, share, bytes, bytes


@exercise
def one_bit(answer):
    """`answer(total)` returns the sign of each element times one size, and what is left of `total`."""
    for seed in range(3):
        total = torch.randn(1000, generator=torch.Generator().manual_seed(seed)) ** 3
        sent, residual = answer(total.clone())
        assert torch.allclose(sent.abs(), sent.abs()[0].expand(1000)), (
            "The elements sent have several sizes; send one bit for each and one size for all."
        )
        assert torch.equal(sent.sign(), total.sign()), "An element is sent with the wrong sign."
        assert torch.allclose(sent + residual, total, atol=1e-5), (
            "What is sent and what is left do not add up to the total; nothing may be lost."
        )
        best = (total - total.sign() * total.abs().mean()).norm()
        assert residual.norm() < best * 1.0001, (
            f"The residual is {residual.norm() / best:.2f} times as long as necessary: which size makes "
            "it shortest?"
        )
    return "It sends one bit for each element and one size, and keeps the rest for later."


@exercise
def percent(answer):
    """`answer`: sparse bytes over dense bytes on 64 ranks, in percent."""
    right = 100 * compression.sparse_share(DENSITY, RANKS, VALUE, INDEX)
    is_number(answer)
    assert abs(answer - right / 100) > 0.005, "That is right as a share; give it in per cent."
    assert abs(answer - 100 * DENSITY * RANKS) > 0.5, "Almost: an index takes more bytes than a value here."
    assert abs(answer - 100 * DENSITY * RANKS / 2) > 0.5, "That leaves the indices out."
    assert abs(answer - 2 * right) > 0.5, "A dense value travels around the ring twice."
    assert abs(answer - right) < 0.5, f"{answer:g} % is not right: how do the bytes grow with the ranks?"
    return f"{right:.0f} %; on 134 ranks nothing is saved."
