"""The exercises of the chapter on parallelism strategies."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from allranks import collectives, launch
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.trace import trace

SECONDS = 20.0
RANKS, LAYERS, NEURONS, HIDDEN = 4, 4, 32, 8  # the network of the chapter
TOKENS = 6  # of the checks, which have other numbers of neurons and features too


def _sent_with_tensor_slices(tokens):
    """Bytes of a step: an all-reduce of all tokens forward and one backward, in each layer."""
    return 2 * LAYERS * collectives.ring_all_reduce_bytes(4 * tokens * HIDDEN, RANKS)


@exercise
def tokens(answer):
    """`answer`: the tokens of a batch with which tensor parallelism sends as much as data parallelism."""
    is_number(answer)
    weights = 4 * LAYERS * NEURONS * 2 * HIDDEN
    expected = weights // (2 * LAYERS * 4 * HIDDEN)
    of_data = collectives.ring_all_reduce_bytes(weights, RANKS)
    assert _sent_with_tensor_slices(expected) == of_data
    assert answer != 2 * expected, (
        "That is for one all-reduce a layer; it needs one forward and one backward."
    )
    more = "more" if _sent_with_tensor_slices(answer) > of_data else "less"
    assert answer == expected, (
        f"With {answer:g} tokens, tensor parallelism sends {_sent_with_tensor_slices(answer):,.0f} bytes: "
        f"{more} than the {of_data:,.0f} of data parallelism."
    )
    return f"{expected} tokens: both send {of_data:,.0f} bytes."


def _block(x, reads, writes):
    return F.relu(x @ reads.T) @ writes


@exercise
def read_in_parts(answer):
    """`answer(x, reads, writes)`: the block's output, from a quarter of the columns of `x` and of `reads`."""
    torch.manual_seed(0)
    x, reads, writes = torch.randn(TOKENS, 12), torch.randn(20, 12), torch.randn(20, 5)

    def on_rank():
        rank = dist.get_rank()
        columns = [t.chunk(RANKS, 1)[rank].contiguous() for t in (x, reads)]
        with trace() as counted:
            y = answer(*columns, writes)
        dist.barrier()
        return y, counted.calls.total()

    expected = _block(x, reads, writes)
    late = (
        sum(F.relu(a @ b.T) for a, b in zip(x.chunk(RANKS, 1), reads.chunk(RANKS, 1), strict=True)) @ writes
    )
    for rank, (y, calls) in enumerate(launch(on_rank, world_size=RANKS, timeout=SECONDS)):
        assert isinstance(y, torch.Tensor), f"Rank {rank} returns {type(y).__name__}, not a tensor."
        assert y.shape == expected.shape, (
            f"Rank {rank} returns shape {tuple(y.shape)}; expected {tuple(expected.shape)}."
        )
        assert not torch.allclose(y, late, rtol=1e-4, atol=1e-5), (
            "A sum of ReLUs is not the ReLU of the sum: what has to be summed, and when?"
        )
        assert torch.allclose(y, expected, rtol=1e-4, atol=1e-5), (
            f"Rank {rank}'s output differs from one process's, after {calls} collectives."
        )
        assert calls == 1, f"The output is right, but takes {calls} collectives; one is enough."
    return "The output equals one process's: the sum comes before the ReLU."


@exercise
def visit(answer):
    """`answer(tokens, expert)`: the outputs of token i of rank r from the expert of rank (i + r) % 4."""
    torch.manual_seed(0)
    x, experts = torch.randn(RANKS, RANKS, 3), torch.randn(RANKS, 3, 3)

    def on_rank():
        rank = dist.get_rank()
        return answer(x[rank].clone(), lambda tokens: torch.relu(tokens @ experts[rank]))

    def of(choose):
        rows = [[torch.relu(x[r, i] @ experts[choose(i, r)]) for i in range(RANKS)] for r in range(RANKS)]
        return torch.stack([torch.stack(row) for row in rows])

    expected, unrouted, turned = (
        of(lambda i, r: (i + r) % RANKS),
        of(lambda i, r: i),
        of(lambda i, r: (i - r) % RANKS),
    )
    found = launch(on_rank, world_size=RANKS, timeout=SECONDS)
    for rank, y in enumerate(found):
        assert isinstance(y, torch.Tensor), f"Rank {rank} returns {type(y).__name__}, not a tensor."
        assert y.shape == expected[rank].shape, (
            f"Rank {rank} returns shape {tuple(y.shape)}; expected {tuple(expected[rank].shape)}."
        )
    y = torch.stack(found)

    def is_(other):
        return torch.allclose(y, other, rtol=1e-4, atol=1e-5)

    assert not is_(unrouted), "Token i visits expert i on every rank; on rank r it should visit (i + r) % 4."
    assert not is_(turned), "Token i of rank r visits expert (i − r) % 4; expected (i + r) % 4."
    in_order_of_experts = torch.stack([expected[r].roll(r, 0) for r in range(RANKS)])
    assert not is_(in_order_of_experts), (
        "Each token met its expert, but the outputs come in the order of experts, not of tokens."
    )
    for rank in range(RANKS):
        assert torch.allclose(y[rank], expected[rank], rtol=1e-4, atol=1e-5), (
            f"Rank {rank}'s outputs are not what experts (i + {rank}) % 4 return."
        )
    return f"All {RANKS * RANKS} tokens reached their expert and returned to their places."
