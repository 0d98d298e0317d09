"""The next token: its parts are those of the step and of the collectives, and its bound changes at a knee."""

import pytest

from allranks import collectives, hardware, inference, memory, transformer
from allranks.claims import ledger
from allranks.explorers import decode_measured
from allranks.transformer import PRESETS

LARGE, SMALL = PRESETS["llama3-70b"], PRESETS["llama3-8b"]


@pytest.mark.parametrize("sequences, past", [(1, 0), (7, 2048), (512, 300), (2048, 0)])
@pytest.mark.parametrize("ranks", [1, 8, 16])
def test_the_parts_are_those_of_the_step_of_a_slice(ranks, sequences, past):
    token = inference.next_token(LARGE, "h100", "nvlink-4", ranks, sequences, past)
    own = inference.step(inference.tensor_slice(LARGE, ranks), 1, past, sequences)
    arithmetic, reading = own.seconds("h100")
    assert (token.arithmetic, token.reading) == pytest.approx((arithmetic, reading))
    assert token.device == pytest.approx(max(arithmetic, reading))
    assert token.seconds == token.device + token.sending
    hidden = ["arithmetic"] if own.bound("h100") == "memory" else ["weights", "cache"]
    parts = {name: each for name, each in token._asdict().items() if name not in hidden}
    assert token.bound == max(parts, key=parts.get)


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling"])
def test_collectives_are_hops_and_bytes_of_the_fastest_protocol(algorithm):
    links, sent = hardware.protocols("nvlink-4"), inference.tensor_messages(LARGE, 5)
    token = inference.next_token(LARGE, "h100", "nvlink-4", 8, 5, algorithm=algorithm)
    one = collectives.by_protocol("all_reduce", algorithm, sent.nbytes, 8, links)[1]
    gather = collectives.by_protocol("all_gather", "ring", sent.gathered, 8, links)[1]
    assert token.sending == pytest.approx(161 * one + gather)
    hops = {"ring": 14, "recursive_doubling": 3}[algorithm]
    by_ll = {each.name: each.α for each in links}["LL"]
    assert token.latency >= 161 * hops * by_ll  # the all-gather is of more bytes, and by another protocol


def test_a_pipeline_makes_no_token_sooner_and_more_of_them():
    """Stages take turns: one sequence waits for all of them and for as many links; four keep four busy."""
    one, four = (inference.next_token(LARGE, "h100", "nvlink-4", stages=each) for each in (1, 4))
    assert four.device == one.device and four.seconds > one.seconds
    full = inference.next_token(LARGE, "h100", "nvlink-4", sequences=4, stages=4)
    assert full == four
    vector = 2 * LARGE.hidden
    hop = collectives.by_protocol("send", "direct", vector, 2, hardware.protocols("nvlink-4"))[1]
    assert full.sending == pytest.approx(4 * hop)


def test_memory_is_weights_of_the_slice_and_a_cache_of_its_heads():
    for ranks in (1, 2, 8, 16):
        part = inference.tensor_slice(LARGE, ranks)
        room = inference.largest_batch(part, 2049, 80e9)
        for sequences, fits in ((room, True), (room + 1, False)):
            weights, cache = inference.decode_memory(LARGE, ranks, 1, sequences, 2049)
            assert weights == 2 * transformer.parameters(part)
            assert cache == memory.kv_cache_bytes(LARGE, 2049, sequences, ranks)
            if room:
                assert (weights + cache <= 80e9) == fits


def test_stages_divide_layers_as_evenly_as_possible():
    whole, _ = inference.decode_memory(LARGE)
    weights, cache = inference.decode_memory(LARGE, 1, 4, 3, 100)
    assert 4 * cache == memory.kv_cache_bytes(LARGE, 100, 3)
    assert whole / 4 < weights < whole / 4 + 2 * LARGE.vocabulary * LARGE.hidden
    large = PRESETS["llama3-405b"]  # 126 layers on four stages: at most 32 on one
    assert inference.decode_memory(large, 8, 4, 1, 1)[1] == memory.kv_cache_bytes(large, 1, 1, 8) * 32 // 126


@pytest.mark.parametrize("past", [128, 2048, 32768])
@pytest.mark.parametrize("ranks", [1, 8])
def test_the_knee_of_the_batch_is_where_something_else_bounds_the_token(ranks, past):
    options = {"ranks": ranks, "past": past}
    knee = inference.batch_knee(LARGE, "h100", "nvlink-4", 4096, **options)
    before, after = (
        inference.next_token(LARGE, "h100", "nvlink-4", sequences=each, **options).bound
        for each in (knee - 1, knee)
    )
    assert before == inference.next_token(LARGE, "h100", "nvlink-4", **options).bound != after
    assert inference.batch_knee(LARGE, "h100", "nvlink-4", knee - 1, **options) is None


def test_with_a_short_cache_the_knee_of_one_device_is_its_ridge():
    """Each weight read serves as many FLOPs a byte as there are sequences: 295 reach the ridge of an H100."""
    knee = inference.batch_knee(SMALL, "h100", "nvlink-4", past=1)
    ridge = hardware.ridge("h100")
    assert ridge < knee < 1.1 * ridge
    assert inference.next_token(SMALL, "h100", "nvlink-4", sequences=knee, past=1).bound == "arithmetic"


def test_what_was_measured_is_slower_than_the_bound_and_not_by_much():
    """gpt-fast's README: one sequence of at most 205 tokens on one to eight A100s, held to 330 W."""
    printed = {
        name: claim.printed for name, claim in ledger.entries().items() if name.startswith("gpt-fast-")
    }
    assert len(printed) == len(decode_measured.MEASURED)
    for name, ranks, tokens in decode_measured.MEASURED:
        assert float(printed[f"gpt-fast-{name}-{ranks}"]) == tokens
        bound = 1 / inference.next_token(PRESETS[name], "a100-80gb", "nvlink-3", ranks, past=128).seconds
        assert 0.4 * bound < tokens < 0.75 * bound


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: inference.next_token(LARGE, "h100", "nvlink-4", 3), "3 ranks cannot share 64"),
        (lambda: inference.next_token(LARGE, "h100", "nvlink-4", sequences=0), "sequences must be a whole"),
        (lambda: inference.next_token(LARGE, "h100", "nvlink-4", stages=0), "stages must be a whole"),
        (lambda: inference.next_token(PRESETS["mixtral-8x7b"], "h100", "nvlink-4"), "8 experts"),
        (lambda: inference.decode_memory(LARGE, 1, 0), "stages must be a whole"),
        (lambda: inference.batch_knee(LARGE, "h100", "nvlink-4", 0), "most must be a whole"),
    ],
)
def test_what_cannot_be_computed_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
