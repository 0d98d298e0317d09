"""The sequence is split so that every token has one owner, and every pair is counted once."""

import itertools

import pytest

from allranks import attention, collectives

CASES = [
    (sequence, p, split, causal)
    for sequence, p in [(8, 1), (8, 2), (16, 4), (24, 3), (80, 8)]
    for split in attention.SPLITS
    for causal in (False, True)
]
ALL = pytest.mark.parametrize("sequence, p, split, causal", CASES)


def tokens(sequence, p, split, rank):
    """The positions of a rank, one by one."""
    return [position for span in attention.spans(sequence, p, split, rank) for position in range(*span)]


@ALL
def test_every_token_has_one_owner(sequence, p, split, causal):
    owned = [tokens(sequence, p, split, rank) for rank in range(p)]
    assert sorted(itertools.chain(*owned)) == list(range(sequence))
    assert {len(each) for each in owned} == {sequence // p}


@ALL
def test_pairs_are_those_counted_one_by_one(sequence, p, split, causal):
    hops = attention.ring_pairs(sequence, p, split, causal)
    for hop, rank in itertools.product(range(p), range(p)):
        queries, keys = tokens(sequence, p, split, rank), tokens(sequence, p, split, (rank - hop) % p)
        counted = sum(not causal or key <= query for query in queries for key in keys)
        assert hops[hop][rank] == counted
    whole = sequence * (sequence + 1) // 2 if causal else sequence**2
    assert sum(attention.rank_pairs(sequence, p, split, causal)) == whole


@pytest.mark.parametrize("queries", [(0, 4), (3, 9), (5, 6), (8, 12)])
@pytest.mark.parametrize("keys", [(0, 4), (2, 7), (4, 5), (6, 14)])
def test_pairs_of_any_two_spans(queries, keys):
    counted = sum(key <= query for query in range(*queries) for key in range(*keys))
    assert attention.pairs(queries, keys, True) == counted


@pytest.mark.parametrize("p", [2, 4, 8])
def test_zig_zag_gives_a_causal_mask_the_same_work_on_all_ranks_at_every_hop(p):
    hops = attention.ring_pairs(16 * p, p, "zigzag", True)
    assert all(len(set(hop)) == 1 for hop in hops)
    assert attention.ring_efficiency(16 * p, p, "zigzag", True) == 1


@pytest.mark.parametrize("p", [2, 4, 8])
def test_contiguous_parts_leave_the_first_ranks_idle(p):
    sequence = 1024 * p
    work = attention.rank_pairs(sequence, p, "contiguous", True)
    assert work[-1] / work[0] == pytest.approx(2 * p - 1, rel=2e-3)
    # every hop but the first lasts a whole part, while half of the pairs are masked
    assert attention.ring_efficiency(sequence, p, "contiguous", True) == pytest.approx(
        p / (2 * p - 1), rel=2e-3
    )
    assert attention.ring_efficiency(sequence, p, "contiguous", False) == 1


def test_a_hop_lasts_as_long_as_its_slowest_rank():
    hops = attention.ring_pairs(64, 4, "contiguous", True)
    makespan = sum(map(max, hops))
    assert makespan == 136 + 3 * 256
    assert attention.ring_efficiency(64, 4, "contiguous", True) == sum(map(sum, hops)) / (4 * makespan)


def test_the_ring_sends_keys_and_values_p_minus_one_times():
    part = attention.hop_bytes(8192, 4, kv_heads=8, head_width=128)
    assert part == 2 * 2048 * 8 * 128 * 2  # keys and values, tokens, heads, width, bytes
    whole = 2 * 8192 * 8 * 128 * 2
    assert attention.ring_bytes(8192, 4, 8, 128) == 3 * part == collectives.ring_all_gather_bytes(whole, 4)
    assert attention.hop_bytes(8192, 1, 8, 128) == attention.ring_bytes(8192, 1, 8, 128) == 0


def test_backward_a_ring_sends_twice_as_much():
    assert attention.ring_backward_bytes(8192, 4, 8, 128) == 2 * attention.ring_bytes(8192, 4, 8, 128)


def test_ulysses_sends_four_activations_in_parts():
    s, p, heads, width = 8192, 8, 16, 128
    elements = 4 * s * heads * width / p * (p - 1) / p  # 4Nh/P, less what stays
    assert attention.ulysses_bytes(s, p, heads, heads, width, element=2) == 2 * elements
    assert attention.ulysses_bytes(s, 1, heads, heads, width) == 0
    assert attention.ulysses_bytes(s, p, heads, 8, width) == 2 * elements * (16 + 8) / 32
    with pytest.raises(ValueError, match="kv_heads must be a multiple of context_parallel = 8"):
        attention.ulysses_bytes(s, p, heads, 4, width)


def test_a_hop_is_hidden_when_a_rank_has_as_many_tokens_as_flops_a_byte():
    assert attention.hop_tokens(16, 16, 1000e12, 50e9) == 20_000
    assert attention.hop_tokens(16, 1, 1000e12, 50e9) == 20_000 / 16
    c = attention.hop_tokens(16, 2, 1000e12, 50e9, element=4, causal=True)
    seconds = 4 * c * c / 2 * 16 * 128 / 1000e12
    assert seconds == pytest.approx(2 * c * 2 * 128 * 4 / 50e9)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: attention.spans(12, 4, "zigzag", 0),
            "sequence must be a multiple of the number of parts = 8",
        ),
        (lambda: attention.spans(16, 4, "striped", 0), "split must be one of 'contiguous', 'zigzag'"),
        (lambda: attention.hop_pairs(16, 4, "zigzag", True, 4, 0), "rank must be a whole number from 0 to 3"),
        (lambda: attention.hop_pairs(16, 4, "zigzag", True, 0, 4), "hop must be a whole number from 0 to 3"),
        (lambda: attention.hop_bytes(10, 4, 8, 128), "sequence must be a multiple of context_parallel = 4"),
    ],
)
def test_a_slip_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


DOCUMENTS = [(8, [8]), (8, [3, 5]), (16, [1, 7, 4, 4]), (24, [24]), (24, [2, 20, 2]), (64, [20, 4, 30, 10])]


def owned(sequence, p, split, documents, rank):
    """The positions of a rank, one by one, and what document each of them belongs to."""
    spans = attention.document_spans(sequence, p, split, documents, rank)
    return [(document, at) for document, first, end in spans for at in range(first, end)]


@pytest.mark.parametrize("sequence, documents", DOCUMENTS)
@pytest.mark.parametrize("split", attention.DOCUMENT_SPLITS)
@pytest.mark.parametrize("p", [1, 2, 4])
def test_every_token_of_a_document_has_one_owner_and_all_ranks_have_equally_many(
    sequence, documents, p, split
):
    number = [document for document, length in enumerate(documents) for _ in range(length)]
    ranks = [owned(sequence, p, split, documents, rank) for rank in range(p)]
    assert sorted(itertools.chain(*ranks), key=lambda each: each[1]) == list(zip(number, range(sequence)))
    assert {len(each) for each in ranks} == {sequence // p}
    if split != "documents":
        for rank, each in enumerate(ranks):
            assert [at for _, at in each] == sorted(tokens(sequence, p, split, rank))


@pytest.mark.parametrize("sequence, documents", DOCUMENTS)
@pytest.mark.parametrize("split", attention.DOCUMENT_SPLITS)
@pytest.mark.parametrize("p", [1, 2, 4])
def test_documents_are_pairs_counted_one_by_one(sequence, documents, p, split):
    ranks = [owned(sequence, p, split, documents, rank) for rank in range(p)]
    hops = [
        [
            sum(
                document == other and key <= query
                for document, query in ranks[rank]
                for other, key in ranks[(rank - hop) % p]
            )
            for rank in range(p)
        ]
        for hop in range(p)
    ]
    counted = [sum(hop[rank] for hop in hops) for rank in range(p)]
    assert attention.document_hops(sequence, p, split, documents) == hops
    assert attention.document_pairs(sequence, p, split, documents) == counted
    assert sum(counted) == sum(length * (length + 1) // 2 for length in documents)
    if split == "zigzag":
        assert attention.attended(sequence, p, documents) == max(counted) * p / sequence**2


def test_zig_zag_equals_out_a_causal_mask_and_documents_undo_it():
    assert attention.attended(64) == attention.attended(64, 8) == 65 / 128
    alone = attention.attended(64, 1, [8, 48, 8])
    assert alone < attention.attended(64, 8, [8, 48, 8]) < 65 / 128


@pytest.mark.parametrize("p, documents", [(2, [8, 40, 16]), (4, [16, 8, 40]), (8, [16, 16, 32])])
def test_zig_zag_in_each_document_gives_all_ranks_the_same_work_at_every_hop(p, documents):
    hops = attention.document_hops(64, p, "documents", documents)
    assert all(len(set(hop)) == 1 for hop in hops)
    assert len(set(attention.document_pairs(64, p, "zigzag", documents))) > 1


@pytest.mark.parametrize("documents", [[37, 3, 11, 13], [61, 3], [1] * 64, [5, 7, 9, 43]])
@pytest.mark.parametrize("p", [2, 4, 8])
def test_what_does_not_divide_unbalances_by_less_than_a_row_of_each_token_dealt_out(p, documents):
    work = attention.document_pairs(64, p, "documents", documents)
    left = [length % (2 * p) for length in documents]
    assert max(work) - min(work) <= sum(length * -(-rest // p) for length, rest in zip(documents, left))


@pytest.mark.parametrize("documents", [[9, 30, 5, 5, 9, 6], [7], [4, 4, 4, 4], [8, 7, 6, 5, 4, 3]])
def test_whole_documents_are_dealt_out_within_a_third_of_the_best(documents):
    def most(owner):
        return max(
            sum(length * (length + 1) // 2 for length, each in zip(documents, owner) if each == rank)
            for rank in range(3)
        )

    dealt = attention.whole_documents(documents, 3)
    assert sorted(itertools.chain(*dealt)) == list(range(len(documents)))
    owner = {document: rank for rank, each in enumerate(dealt) for document in each}
    best = min(map(most, itertools.product(range(3), repeat=len(documents))))
    assert most([owner[document] for document in range(len(documents))]) <= best * (4 / 3 - 1 / 9)
    # a bound of Graham 1969, for the longest first


def test_documents_that_are_not_the_sequence_are_refused():
    with pytest.raises(ValueError, match="documents must add up to a sequence of 8 tokens, not to 7"):
        attention.document_pairs(8, 2, "zigzag", [3, 4])
    with pytest.raises(ValueError, match="sequence must be a multiple of context_parallel = 4"):
        attention.document_spans(7, 4, "documents", [3, 4], 0)
    with pytest.raises(ValueError, match="split must be one of 'contiguous', 'zigzag', 'documents'"):
        attention.document_pairs(8, 2, "striped", [3, 5])
    with pytest.raises(ValueError, match="rank must be a whole number from 0 to 1"):
        attention.document_spans(8, 2, "documents", [3, 5], 2)
