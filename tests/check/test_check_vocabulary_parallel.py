"""The check of the chapter on the vocabulary says ✓ to right answers and ✗, with a hint, to wrong ones."""

import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import vocabulary_parallel
from allranks.parallel.tensor import total


def by_two_numbers(logits):
    value, place = logits.max(-1)
    best = total(value, op=dist.ReduceOp.MAX)
    token = place + dist.get_rank() * logits.shape[-1]
    return total(torch.where(value == best, token, 2**31), op=dist.ReduceOp.MIN)


def by_all_logits(logits):
    parts = [torch.empty_like(logits) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, logits)
    return torch.cat(parts, dim=1).argmax(-1)


def test_greedy_needs_no_logits_of_others(capsys):
    assert verdict(capsys, vocabulary_parallel.greedy, by_two_numbers).startswith("✓")
    assert "20,000 bytes" in verdict(capsys, vocabulary_parallel.greedy, by_all_logits)
    assert "one process returns" in verdict(
        capsys, vocabulary_parallel.greedy, lambda logits: logits.argmax(-1)
    )
