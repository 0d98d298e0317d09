"""The exercises of the chapter on offload."""

import torch

from allranks import memory
from allranks.check import exercise
from allranks.check.stubs import is_number

PARAMETERS, MICROBATCHES = 13e9, 4


@exercise
def link(answer):
    """`answer`: gigabytes that cross the link in a step of four micro-batches."""
    traffic = memory.offload_traffic(PARAMETERS, microbatches=MICROBATCHES)
    right = traffic.link / 1e9
    is_number(answer)
    assert abs(answer - 52) > 0.5, (
        "That is for a single micro-batch: what leaves the GPU after each of the four?"
    )
    assert abs(answer - 4 * 52) > 0.5, "Gradients leave four times, but weights change only once a step."
    assert abs(answer - right * 1e9) > 1, "That is right in bytes; give it in gigabytes."
    assert abs(answer - right) < 0.5, (
        f"{answer:g} GB is not right: count what leaves the GPU and what comes back."
    )
    return f"{right:.0f} GB: 4 × 26 leave and 26 come back."


@exercise
def backward_in_tiles(answer):
    """`answer(gradient, fetch, tiles)`: the gradient of a linear layer's input, weights fetched in tiles."""
    draw = torch.Generator().manual_seed(0)
    weight, gradient = torch.randn(12, 5, generator=draw), torch.randn(7, 12, generator=draw)
    for tiles in (1, 3, 4):
        fetched = []

        def fetch(first, last, fetched=fetched):
            fetched.append((first, last))
            return weight[first:last].clone()

        found = answer(gradient.clone(), fetch, tiles)
        longest = max((last - first for first, last in fetched), default=0)
        assert longest, "Nothing was fetched: `fetch(first, last)` returns these rows of the weights."
        assert longest <= 12 // tiles, (
            f"With {tiles} tiles, {longest} of 12 rows were on the device at once: fetch {12 // tiles} at "
            "a time."
        )
        rows = sorted(row for first, last in fetched for row in range(first, last))
        assert rows == list(range(12)), "Each row of the weights has to be fetched exactly once."
        assert torch.is_tensor(found) and found.shape == (7, 5), (
            f"The input's gradient has shape {getattr(found, 'shape', found)}; expected (7, 5), like the "
            "input."
        )
        assert torch.allclose(found, gradient @ weight, atol=1e-5), (
            "The result is not `gradient @ weight`: every tile adds to the gradient of the same input."
        )
    return "Every tile adds its part, and at most one is on the device."
