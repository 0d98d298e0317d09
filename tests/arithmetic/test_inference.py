"""A step of inference: FLOPs as those of training, bytes of weights and cache, and what bounds it."""

import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import collectives, hardware, inference, memory, transformer
from allranks.transformer import PRESETS

DENSE = [name for name, model in PRESETS.items() if model.experts == 1]
LLAMA = PRESETS["llama3-8b"]


@pytest.mark.parametrize("name", DENSE)
def test_a_prefill_computes_what_a_forward_pass_of_training_does(name):
    model = PRESETS[name]
    assert inference.step(model, 24, 0, 3).flops == transformer.forward_flops(model, 3, 24)


@given(new=st.integers(1, 20), rest=st.integers(1, 20), past=st.integers(0, 50), sequences=st.integers(1, 9))
def test_two_steps_save_only_the_pairs_that_the_first_does_not_look_at(new, rest, past, sequences):
    whole = inference.step(LLAMA, new + rest, past, sequences)
    first, second = (
        inference.step(LLAMA, count, before, sequences) for count, before in ((new, past), (rest, past + new))
    )
    hidden = 4 * LLAMA.layers * LLAMA.heads * LLAMA.head_width * new * rest * sequences
    assert first.flops + second.flops + hidden == whole.flops
    assert second.cache_bytes == whole.cache_bytes
    assert first.nbytes + second.nbytes > whole.nbytes


def test_a_large_pass_reads_every_weight_once():
    for name in ("llama3-8b", "gpt2", "served"):
        model = PRESETS[name]
        positions = model.sequence * model.hidden if model.learned_positions else 0
        everything = transformer.parameters(model) - positions
        assert inference.weight_bytes(model, 10**6, element=1) == everything


def test_the_intensity_of_decode_has_a_limit_that_no_batch_reaches():
    token = inference.step(LLAMA, 1, 2048)
    limit = token.flops / token.cache_bytes
    steps = [inference.step(LLAMA, 1, 2048, 4**k) for k in range(12)]
    intensities = [one.intensity for one in steps]
    assert intensities == sorted(intensities) and intensities[-1] < limit < hardware.ridge("h100")
    assert {one.bound("h100") for one in steps} == {"memory"}
    assert inference.step(LLAMA, 2048).bound("h100") == "arithmetic"


def test_seconds_are_flops_over_the_peak_and_bytes_over_the_bandwidth():
    one = inference.step(LLAMA, 1, 100, 7)
    arithmetic, reading = one.seconds("a100-80gb", "fp16")
    assert arithmetic * 312e12 == pytest.approx(one.flops)
    assert reading * 2039e9 == pytest.approx(one.nbytes)


def test_the_largest_batch_fits_and_one_more_does_not():
    batch, weights = inference.largest_batch(LLAMA, 8192, 80e9), 2 * transformer.parameters(LLAMA)
    held = memory.kv_cache_bytes(LLAMA, 8192)
    assert weights + batch * held <= 80e9 < weights + (batch + 1) * held
    assert inference.largest_batch(LLAMA, 8192, 1e9) == 0


@given(past=st.integers(1, 10**5), heads=st.sampled_from([1, 16, 128]))
def test_absorption_saves_where_more_tokens_are_cached_than_a_query_costs(past, heads):
    plain, absorbed = (
        inference.latent_attention_flops(past, heads, 128, 512, 64, absorbed=form) for form in (False, True)
    )
    assert (absorbed < plain) == (past > 1)
    making_keys_and_values = 2 * heads * past * 2 * 512 * 128
    assert plain > making_keys_and_values


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_slices_are_an_even_share_of_all_but_the_norms(ranks):
    rank, norms = inference.tensor_slice(LLAMA, ranks), (2 * LLAMA.layers + 1) * LLAMA.hidden
    assert ranks * (transformer.parameters(rank) - norms) == transformer.parameters(LLAMA) - norms
    assert ranks * inference.step(rank, 1, 100, 3).flops == inference.step(LLAMA, 1, 100, 3).flops
    assert memory.kv_cache_bytes(rank, 100) == memory.kv_cache_bytes(LLAMA, 100, tensor_parallel=ranks)


@pytest.mark.parametrize("ranks", [16, 32])
def test_beyond_the_number_of_key_heads_the_cache_of_a_rank_stops_shrinking(ranks):
    rank, full = inference.tensor_slice(LLAMA, ranks), inference.tensor_slice(LLAMA, LLAMA.kv_heads)
    assert memory.kv_cache_bytes(rank) == memory.kv_cache_bytes(full)
    assert memory.kv_cache_bytes(rank) == memory.kv_cache_bytes(LLAMA, tensor_parallel=ranks)
    assert ranks * transformer.parameters(rank) > transformer.parameters(LLAMA)


@pytest.mark.parametrize("ranks", [1, 2, 8, 32])
def test_a_token_takes_the_slice_and_two_latencies_a_hop(ranks):
    """With one sequence the ring's bytes are a small part: 2(t − 1) hops of LL's 0.6 µs, 2L + 1 times."""
    model = PRESETS["llama3-70b"]
    own, sums = inference.decode_seconds(model, ranks, "h100", "nvlink-4", 2048)
    alone = inference.step(inference.tensor_slice(model, ranks), 1, 2048).seconds("h100")
    assert own == pytest.approx(max(alone))
    latency = (2 * (2 * model.layers + 1) + 1) * (ranks - 1) * 0.6e-6  # and one all-gather of t − 1 hops
    assert latency <= sums <= 1.1 * latency


def test_a_ring_makes_a_token_slowest_where_there_are_too_many_ranks():
    """The best number of ranks is near √(reading / (2 · all-reduces · α)), where both terms are equal."""
    model = PRESETS["llama3-70b"]
    token = {t: sum(inference.decode_seconds(model, t, "h100", "nvlink-4")) for t in (1, 2, 4, 8, 16, 32, 64)}
    reading = inference.step(model).nbytes / hardware.accelerator("h100").bandwidth
    sums = inference.tensor_messages(model).all_reduces
    best = min(token, key=token.get)
    assert best / 1.5 < math.sqrt(reading / (2 * sums * 0.6e-6)) < 1.5 * best
    assert token[64] > token[8] > token[best]


@given(st.sampled_from([1, 5, 512, 10**5]), st.sampled_from([64, 4096]), st.sampled_from([1, 4, 8]))
def test_the_published_layouts_cross_where_their_formulas_say(tokens, hidden, wide):
    inner, ranks = wide * hidden, 4 * wide
    cost = {name: partial(inference.layout_elements, name) for name in inference.LAYOUTS}
    same = partial(pytest.approx, rel=1e-12)
    assert cost["2D"](tokens, hidden, inner, ranks) == same(cost["1D"](tokens, hidden, inner, ranks))
    assert cost["2D"](tokens, hidden, inner, 2 * ranks) < cost["1D"](tokens, hidden, inner, 2 * ranks)
    assert cost["gathered"](hidden, hidden, inner, ranks) == same(cost["2D"](hidden, hidden, inner, ranks))
    assert cost["gathered"](hidden + 1, hidden, inner, 8) < cost["2D"](hidden + 1, hidden, inner, 8)
    assert cost["gathered"](4 * inner, hidden, inner, 1) == same(cost["1D"](4 * inner, hidden, inner, 1))


def test_counted_exactly_two_dimensions_pay_for_more_than_eight_ranks():
    """The published forms say sixteen: on few ranks (k − 1)/k is far from 1."""
    line, mesh = (
        {n: inference.stationary_elements(1, 64, 256, x, n // x) for n in (4, 8, 16)} for x in (1, 2)
    )
    assert mesh[4] > line[4] and mesh[8] == line[8] and mesh[16] < line[16]


@pytest.mark.parametrize("ranks", [64, 256])
def test_the_published_forms_are_the_best_meshes_but_for_one_part_in_k(ranks):
    hidden, inner, tokens = 4096, 16384, 1024
    meshes = [2**k for k in range(9) if 2**k <= ranks]
    exact = {x: inference.stationary_elements(tokens, hidden, inner, x, ranks // x) for x in meshes}
    best = min(exact, key=exact.get)
    assert best == math.isqrt(ranks) // 2  # x = √n/2, y = 2√n for f = 4h
    published = inference.layout_elements("2D", tokens, hidden, inner, ranks)
    assert published == 8 * tokens * hidden / math.sqrt(ranks)
    assert (1 - 1 / best) * published < exact[best] < published
    line = inference.layout_elements("1D", tokens, hidden, inner, ranks)
    assert exact[1] == (ranks - 1) / ranks * line
    assert exact[1] == collectives.ring_all_reduce_bytes(tokens * hidden, ranks)
    many = inner  # tokens for which √n ranks gather
    gathered = {k: inference.gathered_elements(many, hidden, inner, ranks, k) for k in meshes}
    best = min(gathered, key=gathered.get)
    assert best == math.isqrt(ranks)
    published = inference.layout_elements("gathered", many, hidden, inner, ranks)
    assert (1 - 1 / best) * published == pytest.approx(gathered[best])
    assert gathered[1] == pytest.approx(exact[1] * many / tokens)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: inference.tensor_slice(LLAMA, 3), "3 ranks cannot share 32 .heads. evenly: take a number"),
        (lambda: inference.tensor_slice(LLAMA, 0), "ranks must be a whole number of at least 1, not 0"),
        (
            lambda: inference.tensor_slice(LLAMA._replace(heads=24, kv_heads=6), 4),
            "4 ranks cannot share 6 .kv_heads. evenly: one number must divide the other",
        ),
        (lambda: inference.tensor_messages(LLAMA, 0), "tokens must be a whole number"),
        (lambda: inference.decode_seconds(LLAMA, 8, "h100", "string"), "link must be one of"),
        (lambda: inference.layout_elements("3D", 1, 1, 1, 1), "layout must be one of '1D', '2D', 'gathered'"),
        (lambda: inference.gathered_elements(1, 1, 1, 8, 3), "together must divide ranks = 8, not be 3"),
        (lambda: inference.step(LLAMA, 0), "new must be a whole number of at least 1, not 0"),
        (lambda: inference.step(LLAMA, 1, -1), "past must be a whole number of at least 0, not -1"),
        (lambda: inference.step(PRESETS["mixtral-8x7b"]), "8 experts, .* give a dense model"),
        (lambda: inference.largest_batch(LLAMA, 1, -1.0), "capacity must be a number of at least 0"),
        (lambda: inference.step(LLAMA).seconds("h100", "fp4"), "dtype on h100 must be one of"),
        (lambda: inference.latent_attention_flops(0, 1, 1, 1, 1, True), "past must be a whole number"),
    ],
)
def test_what_cannot_be_computed_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
