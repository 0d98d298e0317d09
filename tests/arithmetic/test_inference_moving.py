"""Moving a cache: who sends which heads, when it pays, and two pools that conserve what one server does."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import loads

from allranks import hardware, inference, memory, transformer
from allranks.inference import Link, Request
from allranks.transformer import PRESETS

LLAMA = PRESETS["llama3-8b"]
H100 = inference.engine(LLAMA, "h100", efficiency=0.6, overhead=0.0005)
NO_LINK = Link(0.0, 0.0)
POWERS = st.sampled_from([1, 2, 4, 8, 16])


@given(POWERS, POWERS, POWERS)
def test_each_receiver_gets_each_of_its_heads_once_from_a_rank_that_holds_it(kv_heads, senders, receivers):
    got = {receiver: [] for receiver in range(senders, senders + receivers)}
    for sender, receiver, source, target, heads in inference.routes(kv_heads, senders, receivers):
        has = inference.held_heads(kv_heads, senders, sender)
        needs = inference.held_heads(kv_heads, receivers, receiver - senders)
        assert list(has[source : source + heads]) == list(needs[target : target + heads])
        assert len(has[source : source + heads]) == heads > 0
        got[receiver] += has[source : source + heads]
    for receiver, heads in got.items():
        assert heads == list(inference.held_heads(kv_heads, receivers, receiver - senders))


@given(POWERS, POWERS)
def test_heads_are_held_as_a_tensor_slice_holds_them(kv_heads, ranks):
    model = transformer.llama(2, 64, 16, 32, 16, kv_heads, 16, head_width=4)
    held = [inference.held_heads(kv_heads, ranks, rank) for rank in range(ranks)]
    assert {len(each) for each in held} == {inference.tensor_slice(model, ranks).kv_heads}
    assert {head for each in held for head in each} == set(range(kv_heads))


def test_receivers_of_a_copied_head_take_the_senders_that_hold_it_in_turn():
    senders = [route.sender for route in inference.routes(1, 4, 4)]
    assert senders == [0, 1, 2, 3]


@pytest.mark.parametrize("receivers, times", [(1, 1), (2, 1), (8, 1), (16, 2), (32, 4)])
def test_copies_are_sent_beyond_the_number_of_heads(receivers, times):
    whole = memory.kv_cache_bytes(LLAMA, 48)
    assert inference.moved_bytes(LLAMA, 33, receivers, page=16) == times * whole


@pytest.mark.parametrize("name", ["llama2-7b", "llama3-70b", "llama3-405b"])
@pytest.mark.parametrize("tokens", [1, 8192, 100_000])
def test_mooncakes_formula_with_all_matrices_is_the_count(name, tokens):
    model = PRESETS[name]
    dense = (transformer.layer_flops(model, 1, 1) - transformer.attention_core_flops(model, 1, 1)) / (
        model.hidden**2
    )
    printed = inference.mooncake_break_even(tokens, model.hidden, model.heads // model.kv_heads, 4, dense)
    assert inference.break_even_bandwidth(model, tokens, 1e15) == pytest.approx(1e15 * printed)


def test_at_the_break_even_bandwidth_moving_takes_as_long_as_computing():
    peak = hardware.peak("h100")
    bandwidth = inference.break_even_bandwidth(LLAMA, 5000, peak)
    moving = inference.moved_bytes(LLAMA, 5000) / bandwidth
    assert moving == pytest.approx(inference.recompute_flops(LLAMA, 5000) / peak)
    longer = inference.break_even_bandwidth(LLAMA, 50_000, peak)
    assert longer < bandwidth  # attention grows with the square, bytes do not


@given(st.integers(1, 50), st.floats(0.001, 10), st.floats(0, 10))
def test_streaming_is_what_an_event_by_event_account_gives(layers, computing, moving):
    computed = sent = 0.0
    for _ in range(layers):
        computed += computing / layers
        sent = max(sent, computed) + moving / layers
    assert inference.streamed_seconds(layers, computing, moving) == pytest.approx(sent)
    assert inference.streamed_seconds(1, computing, moving) == pytest.approx(computing + moving)


SPLIT_LOADS = loads(
    link=st.sampled_from([NO_LINK, Link(0.5, 0.0), Link(0.25, 0.125)]),
    prefills=st.integers(1, 3),
    decodes=st.integers(1, 3),
    budget=st.integers(12, 60),
)


@given(SPLIT_LOADS)
def test_every_request_gets_its_tokens_and_the_cache_moves_before_the_second(load):
    listed, options, engine = load
    run = inference.serve_split(listed, engine, **options)
    assert [each.request for each in run.served] == listed
    start, token = options["link"]
    for each in run.served:
        assert len(each.times) == each.request.output
        assert inference.ttft(each) > 0 and all(gap > 0 for gap in inference.gaps(each))
        seconds = [second for _, second in each.phases]
        assert seconds == sorted(seconds) and each.phases[-1] == ("done", each.times[-1])
        if each.request.output > 1:
            assert each.times[1] - each.times[0] > start + token * each.request.prompt
            assert [name for name, _ in each.phases[:5]] == [
                "waiting",
                "prefill",
                "moving",
                "waiting",
                "decode",
            ]


@given(SPLIT_LOADS)
def test_two_pools_conserve_tokens_pages_and_time(load):
    listed, options, engine = load
    run = inference.serve_split(listed, engine, **options)
    again = sum(inference.preemptions(each) for each in run.served)
    prompts = sum(each.prompt for each in listed)
    computed = sum(each.prompt_tokens for each in run.iterations)
    assert (computed > prompts) == (again > 0) and computed >= prompts
    written = len(listed) + sum(each.decoded for each in run.iterations)
    assert written <= sum(each.output for each in listed) <= written + again
    if options["pages"] is None:
        assert again == 0
    else:
        decoding = [each for each in run.iterations if each.decoded]
        assert all(each.pages <= options["pages"] for each in decoding)
    seconds = 0.0  # Little's law: in which requests are on a server, by their own records
    for each in run.served:
        for (name, begin), (_, end) in pairwise(each.phases):
            seconds += end - begin if name in ("prefill", "decode") else 0
    assert sum(each.running * (each.end - each.start) for each in run.iterations) == pytest.approx(seconds)


@given(SPLIT_LOADS)
def test_a_link_carries_one_cache_at_a_time_in_the_order_of_arrival(load):
    listed, options, engine = load
    run = inference.serve_split(listed, engine, **options)
    start, token = options["link"]
    for first in range(options["prefills"]):
        free = 0.0
        for each in run.served[first :: options["prefills"]]:
            if each.request.output > 1:
                free = max(free, each.times[0]) + start + token * each.request.prompt
                assert each.phases[3] == ("waiting", pytest.approx(free))


def test_one_request_takes_its_prefill_its_way_and_its_steps():
    link = inference.cache_link(LLAMA, "infiniband-ndr")
    (alone,) = inference.serve_split([Request(1.5, 1000, 3)], H100, link, budget=1000).served
    (same,) = inference.serve([Request(1.5, 1000, 3)], H100, "continuous", 1000).served
    move = 14e-6 + memory.kv_cache_bytes(LLAMA, 1000) / 50e9
    assert inference.ttft(alone) == pytest.approx(inference.ttft(same))
    first, second = inference.gaps(alone)
    assert first == pytest.approx(move + inference.gaps(same)[0])
    assert second == pytest.approx(inference.gaps(same)[1])


def test_a_long_prompt_on_another_server_delays_nobody():
    room = [*inference.requests([0.0] * 16, 64, 100), Request(0.3, 8000, 40)]
    link = inference.cache_link(LLAMA, "infiniband-ndr")
    longest = [
        max(inference.gaps(run.served[0]))
        for run in (
            inference.serve(room, H100, "continuous", 8192),
            inference.serve(room, H100, "chunked", 512),
            inference.serve_split(room, H100, link, budget=8192),
        )
    ]
    assert longest[0] > 10 * longest[1] and longest[1] > 2 * longest[2]


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("policy", list(inference.POLICIES))
def test_replicas_serve_what_each_alone_serves(servers, policy):
    listed = inference.requests(inference.poisson(9, 20), inference.lengths(9, 99, 20), 8)
    run = inference.serve_replicas(listed, H100, servers, policy)
    for first in range(servers):
        own = inference.serve(listed[first::servers], H100, policy)
        assert run.served[first::servers] == own.served
    assert sorted(run.iterations, key=lambda step: step.end) == run.iterations
    assert math.isfinite(inference.goodput(run, 1.0, 1.0))


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: inference.routes(2, 3, 1), r"3 ranks cannot share 2 \(kv_heads\) evenly: one number must"),
        (lambda: inference.routes(2, 1, 0), "ranks must be a whole number of at least 1|receivers must be"),
        (lambda: inference.held_heads(4, 2, 2), "rank must be a whole number from 0 to 1, not 2"),
        (lambda: inference.recompute_flops(PRESETS["mixtral-8x7b"], 9), "8 experts"),
        (lambda: inference.break_even_bandwidth(LLAMA, 9, 0), "flops must be a number above 0, not 0"),
        (lambda: inference.streamed_seconds(0, 1, 1), "layers must be a whole number of at least 1"),
        (lambda: inference.cache_link(LLAMA, "string"), "link must be one of 'nvlink-2'"),
        (lambda: inference.serve_split([], H100, NO_LINK), "there are no requests: give at least one"),
        (lambda: inference.serve_split([Request(0, 9, 2)], H100, (-1, 0)), "start must be a number of at"),
        (
            lambda: inference.serve_split([Request(0, 9, 2)], H100, NO_LINK, decodes=0),
            "decodes must be a whole number of at least 1",
        ),
        (
            lambda: inference.serve_split([Request(0, 9, 8)], H100, NO_LINK, pages=1, page=15),
            "needs 2 pages of 15 .* has 1",
        ),
        (lambda: inference.serve_replicas([Request(0, 9, 2)], H100, 0), "servers must be a whole number"),
    ],
)
def test_what_cannot_be_moved_or_served_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
