"""The exercise of the chapter Cutting the vocabulary: a whole model in slices."""

import torch
import torch.distributed as dist

from allranks import launch
from allranks.check import exercise
from allranks.trace import trace

SECONDS = 20.0
TOKENS, WORDS = 5, 1000  # logits, of which each of four ranks has a quarter


@exercise
def greedy(answer):
    """`answer(logits)` is the most likely token, from a rank's part of the logits and 16 bytes a token."""
    torch.manual_seed(0)
    logits = torch.randn(TOKENS, WORDS)

    def on_rank():
        with trace() as counted:
            tokens = answer(logits.chunk(4, dim=1)[dist.get_rank()].clone())
        dist.barrier()
        return tokens, sum(counted.bytes.values())

    expected, limit = logits.argmax(-1), 4 * 16 * TOKENS
    for rank, (tokens, nbytes) in enumerate(launch(on_rank, world_size=4, timeout=SECONDS)):
        assert torch.equal(torch.as_tensor(tokens).long(), expected), (
            f"Rank {rank} returns {torch.as_tensor(tokens).tolist()}; one process returns "
            f"{expected.tolist()}."
        )
        assert nbytes <= limit, (
            f"The tokens are right, but the messages have {nbytes:,} bytes; {limit} are enough. What does "
            "a rank need to send about its own vocabulary entries?"
        )
    return f"The tokens equal one process's, in messages of {nbytes} bytes instead of {4 * TOKENS * WORDS:,}."
