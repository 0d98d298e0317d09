"""The checks of the chapter on disaggregation say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
from verdicts import verdict

from allranks import inference
from allranks.check import disaggregation as checks
from allranks.inference import held_heads


def in_turn(kv_heads, senders, receivers):
    found = []
    for receiver in range(receivers):
        for head in held_heads(kv_heads, receivers, receiver):
            holders = [rank for rank in range(senders) if head in held_heads(kv_heads, senders, rank)]
            found.append((holders[receiver % len(holders)], receiver, head))
    return found


def from_the_first(kv_heads, senders, receivers):
    """Another right answer: always the first holder, and the messages in another order."""
    pairs = [(head, receiver) for head in range(kv_heads) for receiver in range(receivers)]
    return [
        (next(rank for rank in range(senders) if head in held_heads(kv_heads, senders, rank)), receiver, head)
        for head, receiver in pairs
        if head in held_heads(kv_heads, receivers, receiver)
    ]


def by_routes(kv_heads, senders, receivers):
    """Another right answer: from the package's routes."""
    return [
        (each.sender, each.receiver - senders, held_heads(kv_heads, senders, each.sender)[each.source + at])
        for each in inference.routes(kv_heads, senders, receivers)
        for at in range(each.heads)
    ]


def all_copies(kv_heads, senders, receivers):
    """Wrong: every holder sends."""
    return [
        (sender, receiver, head)
        for receiver in range(receivers)
        for head in held_heads(kv_heads, receivers, receiver)
        for sender in range(senders)
        if head in held_heads(kv_heads, senders, sender)
    ]


def all_heads(kv_heads, senders, receivers):
    """Wrong: every receiver gets the whole cache."""
    return [
        (from_the_first(kv_heads, senders, 1)[head][0], receiver, head)
        for receiver in range(receivers)
        for head in range(kv_heads)
    ]


def rank_to_rank(kv_heads, senders, receivers):
    """Wrong: as if both sides had the same number of ranks."""
    return [
        (receiver % senders, receiver, head)
        for receiver in range(receivers)
        for head in held_heads(kv_heads, receivers, receiver)
    ]


def no_copies(kv_heads, senders, receivers):
    """Wrong: each head goes to one receiver only."""
    return [
        (sender, head * receivers // kv_heads, head)
        for sender, _, head in from_the_first(kv_heads, senders, 1)
    ]


def world_ranks(kv_heads, senders, receivers):
    """Wrong here: receivers counted behind the senders."""
    return [(sender, senders + to, head) for sender, to, head in in_turn(kv_heads, senders, receivers)]


@pytest.mark.parametrize(
    "answer, said",
    [
        (in_turn, "✓ 9 pairs"),
        (from_the_first, "✓ 9 pairs"),
        (by_routes, "✓ 9 pairs"),
        (all_copies, "than once; one copy is enough"),
        (all_heads, "which is not one of its heads"),
        (rank_to_rank, "does not hold head"),
        (no_copies, "needs the heads [0] but receives []"),
        (world_ranks, "exist; both pools count from 0"),
        (lambda *pools: [], "needs the heads [0, 1] but receives []"),
        (lambda *pools: None, "list of triples; got None"),
        (lambda *pools: [(0, 0)], "each message is (sender, receiver, head), not (0, 0)"),
        (None, "✗"),
    ],
)
def test_messages(capsys, answer, said):
    assert said in verdict(capsys, checks.messages, answer)


def through_tokens(pages, length, size):
    tokens = pages.transpose(2, 3).flatten(3, 4)[:, :, :, :length]
    count = -(-length // size)
    tokens = torch.nn.functional.pad(tokens, (0, 0, 0, count * size - length))
    return tokens.unflatten(3, (count, size)).transpose(2, 3)


def one_by_one(pages, length, size):
    """Another right answer: a token at a time."""
    layers, _, _, heads, page, width = pages.shape
    made = pages.new_zeros(layers, 2, (length + size - 1) // size, heads, size, width)
    for at in range(length):
        made[:, :, at // size, :, at % size] = pages[:, :, at // page, :, at % page]
    return made


def only_reshaped(pages, length, size):
    layers, _, _, heads, _, width = pages.shape
    return pages.reshape(layers, 2, -1, heads, size, width)


def with_what_lies_behind(pages, length, size):
    count, page = pages.shape[2], pages.shape[4]
    return through_tokens(pages, count * page, size)[:, :, : -(-length // size)]


def rounded_down(pages, length, size):
    return through_tokens(pages, length // size * size, size)


def without_the_last(pages, length, size):
    made = one_by_one(pages, length, size)
    made[:, :, (length - 1) // size, :, (length - 1) % size] = 0
    return made


@pytest.mark.parametrize(
    "answer, said",
    [
        (through_tokens, "✓ 8 pairs"),
        (one_by_one, "✓ 8 pairs"),
        (only_reshaped, "in the wrong places"),
        (with_what_lies_behind, "what follows the last token was copied; put"),
        (rounded_down, "the shape is"),
        (without_the_last, "a token is lost"),
        (lambda pages, length, size: pages, "the shape is (2, 2, 3, 3, 8, 4); expected (2, 2, 6, 3, 4, 4)"),
        (lambda pages, length, size: None, "expected a tensor; got NoneType"),
        (None, "✗"),
    ],
)
def test_repage(capsys, answer, said):
    assert said in verdict(capsys, checks.repage, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (12952, "✓ 12,952"),
        (12951, "Recomputing is still faster"),
        (12953, "faster, but so it is for fewer tokens"),
        (10**6, "faster, but so it is for fewer tokens"),
        (1, "25 Gbit/s are bits"),
        (52529, "That would be right at the full peak"),
        (10948, "a cache does not need them"),
        (None, "Replace None with a number"),
        (12952.0, "whole number above 0"),
        ("12952", "✗"),
    ],
)
def test_worth_moving(capsys, answer, said):
    assert said in verdict(capsys, checks.worth_moving, answer)
