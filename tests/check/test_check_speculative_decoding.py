"""The checks of the chapter on speculative decoding say ✓ to right answers, ✗ and a hint to wrong ones."""

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks.check import speculative_decoding as checks


def agreed(draft):
    def guess_for_all(tokens, guesses):
        message = torch.zeros(guesses + 1, dtype=torch.long)
        if dist.get_rank() == 0:
            found = draft(tokens, guesses)
            message[: len(found) + 1] = torch.tensor([len(found), *found])
        dist.broadcast(message, src=0)
        count, *found = message.tolist()
        return found[:count]

    return guess_for_all


def by_objects(draft):
    """Another right answer: pickled."""

    def guess_for_all(tokens, guesses):
        found = [draft(tokens, guesses)]
        dist.broadcast_object_list(found, src=0)
        return found[0]

    return guess_for_all


def of_the_last(draft):
    """Wrong: the last rank guesses for all."""

    def guess_for_all(tokens, guesses):
        found = [draft(tokens, guesses)]
        dist.broadcast_object_list(found, src=dist.get_world_size() - 1)
        return found[0]

    return guess_for_all


def with_what_pads(draft):
    """Wrong: zeros stand for guesses that were not found."""

    def guess_for_all(tokens, guesses):
        message = torch.zeros(guesses, dtype=torch.long)
        if dist.get_rank() == 0:
            found = draft(tokens, guesses)
            message[: len(found)] = torch.tensor(found)
        dist.broadcast(message, src=0)
        return message.tolist()

    return guess_for_all


def of_own_length(draft):
    """Wrong: each rank makes room for as many as it would guess itself."""

    def guess_for_all(tokens, guesses):
        message = torch.tensor(draft(tokens, guesses))
        dist.broadcast(message, src=0)
        return message.tolist()

    return guess_for_all


@pytest.mark.parametrize(
    "answer, said",
    [
        (agreed, "✓ All 3 ranks use rank 0's guesses"),
        (by_objects, "✓ All 3 ranks"),
        (lambda draft: draft, "Rank 1 still uses its own guesses"),
        (of_the_last, "but rank 0 guessed"),
        (with_what_pads, "but rank 0 guessed"),
        (of_own_length, "✗ Your function did not finish"),
        (lambda draft: lambda tokens, guesses: torch.zeros(guesses), "a draft returns a list"),
        (lambda draft: lambda tokens, guesses: [torch.tensor(0)], "tokens are plain integers"),
        (None, "✗"),
    ],
)
def test_agreed(capsys, answer, said):
    assert said in verdict(capsys, checks.agreed, answer)


def after_refusal(p, q):
    missing = (p - q).clamp(min=0)
    return missing / missing.sum()


@pytest.mark.parametrize(
    "answer, said",
    [
        (after_refusal, "✓ Accepted or refused"),
        (lambda p, q: p, "too seldom"),
        (lambda p, q: (p - q).clamp(min=0), "divide by their sum"),
        (lambda p, q: p - q, "is negative"),
        (lambda p, q: after_refusal(q, p), "overall, but p gives it"),
        (lambda p, q: 1, "Expected a tensor of 9 probabilities"),
        (None, "✗"),
    ],
)
def test_after_refusal(capsys, answer, said):
    assert said in verdict(capsys, checks.after_refusal, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (8, "✓ 8 guesses: 3.09 times as fast"),
        (7, "with γ = 8"),
        (20, "with γ = 19"),
        (8.0, "a whole number"),
        (True, "a whole number"),
        (-1, "a whole number"),
        (None, "Replace None"),
    ],
)
def test_how_many(capsys, answer, said):
    assert said in verdict(capsys, checks.how_many, answer)
