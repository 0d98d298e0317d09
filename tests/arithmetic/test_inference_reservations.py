"""Memory for caches, reserved in chunks and in pages; and what is kept of a published trace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import inference
from allranks.inference import Request, memory_shares
from allranks.inference.azure import CODE_OUTPUTS, CODE_PROMPTS
from allranks.inference.reservations import Buddy

POLICIES = ("max", "pow2", "oracle", "paged")
LENGTHS = st.tuples(st.integers(1, 40), st.integers(1, 24))


@given(st.integers(64, 300), st.lists(st.integers(1, 64), max_size=40), st.data())
def test_blocks_of_a_buddy_allocator_never_overlap_and_join_again(places, wanted, data):
    memory, held = Buddy(places), []
    whole = {size: list(starts) for size, starts in memory.free.items()}
    for size in wanted:
        block = memory.take(size)
        if block is None:
            if held:
                memory.release(held.pop(data.draw(st.integers(0, len(held) - 1))))
            continue
        start, given = block
        assert size <= given < 2 * size and start + given <= places
        assert all(start + given <= other or other + more <= start for other, more in held)
        held.append(block)
    for block in held:
        memory.release(block)
    assert {size: sorted(starts) for size, starts in memory.free.items()} == whole


@pytest.mark.parametrize("policy", POLICIES)
@given(st.lists(LENGTHS, min_size=1, max_size=30), st.integers(64, 200))
def test_shares_are_parts_of_the_memory(policy, lengths, places):
    requests = [Request(0.0, *each) for each in [*lengths, *10 * [(40, 24)]]]
    shares = memory_shares(requests, places, policy, longest=64, page=4)
    assert sum(shares) == pytest.approx(1)
    assert all(-1e-9 <= part <= 1 for part in shares)
    assert (policy in ("oracle", "paged")) <= (shares.internal <= 0.25)


def test_chunks_of_the_longest_sequence_leave_what_their_number_leaves():
    requests = [Request(0.0, 10, 20)] * 50
    shares = memory_shares(requests, 300, "max", longest=64)
    assert shares.external == pytest.approx(1 - 4 * 64 / 300)
    assert shares.tokens == pytest.approx(4 * (10 + 10.5) / 300, rel=0.01)
    assert shares.reserved == pytest.approx(4 * 9.5 / 300, rel=0.01)


def test_policies_come_in_the_published_order():
    requests = inference.exponential_lengths(161.31, 337.99, 2048, 600)
    tokens = [memory_shares(requests, 15728, policy).tokens for policy in POLICIES]
    assert tokens == sorted(tokens) and tokens[-1] > 0.95


def test_requests_that_cannot_fit_are_refused():
    with pytest.raises(ValueError, match="a block of 2048, and there are 1500 places"):
        memory_shares([Request(0.0, 10, 10)], 1500, "max")
    with pytest.raises(ValueError, match="all 1 requests fit at once"):
        memory_shares([Request(0.0, 10, 10)], 4096, "paged")


def test_drawn_requests_have_the_arrivals_and_the_medians_of_the_trace():
    requests = inference.code_requests()
    found = [0] * 600
    for each in requests:
        found[int(each.arrival)] += 1
    assert found == inference.code_arrivals() and len(requests) == 1482
    for part, kept in (("prompt", CODE_PROMPTS), ("output", CODE_OUTPUTS)):
        lengths = sorted(getattr(each, part) for each in requests)
        assert kept[9] <= lengths[len(lengths) // 2] <= kept[11]
        assert kept[0] <= lengths[0] and lengths[-1] <= kept[-1]
