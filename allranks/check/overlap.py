"""The exercises of the chapter Overlap as code."""

import torch
import torch.distributed as dist

from allranks import collectives, launch
from allranks.check import exercise
from allranks.check.stubs import is_number, is_returned
from allranks.parallel.overlap import noted, start_sum
from allranks.trace import trace

SECONDS = 20.0
COMMUNICATION, PRODUCT, RANKS = 10.0, 8.0, 8  # ms, ms


@exercise
def backward(answer):
    """`answer(dy, x, weight, start)`: gradients of x and weight, the sum of x's beside weight's product."""

    def tensors():
        torch.manual_seed(0)
        return torch.randn(6, 8), torch.randn(6, 4), torch.randn(8, 4)

    def on_rank():
        dy, x, weight = tensors()
        rank, ranks = dist.get_rank(), dist.get_world_size()
        with trace() as counted:
            part = weight.chunk(ranks)[rank]
            result = answer(dy.chunk(ranks, 1)[rank], x, part, noted(start_sum, counted.events))
        dist.barrier()
        if isinstance(result, tuple | list):  # a handle cannot be sent back
            result = [each if each is None or torch.is_tensor(each) else "a handle" for each in result]
        return result, counted.events

    dy, x, weight = tensors()
    expected = dy @ weight, dy.T @ x
    for rank, (result, events) in enumerate(launch(on_rank, world_size=2, timeout=SECONDS)):
        is_returned(result, "two gradients")
        assert isinstance(result, tuple | list) and len(result) == 2, (
            "Return two gradients: that of x and that of weight."
        )
        for name, found, right in zip(
            ("x", "weight"), result, (expected[0], expected[1].chunk(2)[rank]), strict=True
        ):
            is_returned(found, f"the gradient of {name}")
            assert torch.is_tensor(found), f"The gradient of {name} is not a tensor: did you call finish()?"
            assert found.shape == right.shape, (
                f"Rank {rank}'s gradient of {name} has shape {tuple(found.shape)}; expected "
                f"{tuple(right.shape)}."
            )
            assert torch.allclose(found, right, atol=1e-5), (
                f"Rank {rank}'s gradient of {name} differs from one process's."
            )
        assert events.count("all_reduce") == events.count("wait") == 1, (
            "Call `start` for one sum only, and wait for it once."
        )
        order = [event for event in events if event in ("product", "all_reduce", "wait")]
        assert order == ["product", "all_reduce", "product", "wait"], (
            f"The gradients are right, but the order is {', '.join(order)}, so nothing hides the sum. "
            "Which product does not need it?"
        )
    return "The gradients equal one process's, and the sum runs during the weight's product."


@exercise
def exposed(answer):
    """`answer`: exposed ms of a reduce-scatter of 10 ms, in pieces with a product of 8 ms, on 8 ranks."""
    is_number(answer)
    right = collectives.decomposed(COMMUNICATION, PRODUCT, RANKS)
    for wrong, hint in (
        (COMMUNICATION, "That is without pieces."),
        (COMMUNICATION - PRODUCT, "One of the eight products is computed before anything can be sent."),
        (COMMUNICATION + PRODUCT - PRODUCT / RANKS, "That adds what is hidden instead of subtracting it."),
        (COMMUNICATION + PRODUCT / RANKS, "That is the whole step; exposed is what exceeds the products."),
    ):
        assert abs(answer - wrong) > 1e-6, hint
    assert abs(answer - right) < 1e-6, (
        f"{answer:g} ms is not right: how many transfers, beside how many products?"
    )
    return f"{right:g} ms: seven transfers overlap with seven of the eight products."
