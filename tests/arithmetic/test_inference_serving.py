"""A server under load: what it conserves, queues with known answers, and the order of the policies."""

import math
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import loads

from allranks import hardware, inference, transformer
from allranks.inference import Request
from allranks.transformer import PRESETS

LLAMA = PRESETS["llama3-8b"]
H100 = inference.engine(LLAMA, "h100", efficiency=0.6, overhead=0.0005)
POLICY = pytest.mark.parametrize("policy", list(inference.POLICIES))


LOADS = loads(policy=st.sampled_from(list(inference.POLICIES)), budget=st.integers(1, 60))


@given(LOADS)
def test_every_request_gets_its_tokens_after_it_arrived_and_one_after_another(load):
    listed, options, engine = load
    run = inference.serve(listed, engine, **options)
    assert [each.request for each in run.served] == listed
    for each in run.served:
        assert len(each.times) == each.request.output
        assert inference.ttft(each) > 0 and all(gap > 0 for gap in inference.gaps(each))
        assert [second for _, second in each.phases] == sorted(second for _, second in each.phases)
        assert each.phases[-1] == ("done", each.times[-1])


@given(LOADS)
def test_tokens_are_conserved(load):
    listed, options, engine = load
    run = inference.serve(listed, engine, **options)
    prompts = sum(name == "decode" for each in run.served for name, _ in each.phases)
    decoded = sum(each.decoded for each in run.iterations)
    assert decoded + prompts == sum(each.output for each in listed)
    again = inference.recomputed_tokens(run)
    assert (again > 0) <= any(inference.preemptions(each) for each in run.served)
    if options["pages"] is None:
        assert again == 0 and prompts == len(listed)


@given(LOADS)
def test_pages_are_never_more_than_the_pool_and_hold_the_cache(load):
    listed, options, engine = load
    run = inference.serve(listed, engine, **options)
    pool = math.inf if options["pages"] is None else options["pages"]
    assert 0 < inference.most_pages(run) <= pool
    assert all(each.running <= options["slots"] for each in run.iterations)
    for each in run.iterations:
        assert each.pages * run.page >= each.decoded + each.prompt_tokens
        assert each.prompt_tokens + each.decoded > 0


@given(LOADS)
def test_littles_law_the_number_that_runs_is_the_rate_times_the_time_that_each_runs(load):
    listed, options, engine = load
    run = inference.serve(listed, engine, **options)
    seconds = 0.0  # in which requests hold pages, by the requests' own records
    for each in run.served:
        for (name, start), (_, end) in pairwise(each.phases):
            seconds += end - start if name in ("prefill", "decode") else 0
    number = sum(each.running * (each.end - each.start) for each in run.iterations)
    assert number == pytest.approx(seconds)


@given(LOADS)
def test_service_is_in_the_order_of_arrival(load):
    listed, options, engine = load
    run = inference.serve(listed, engine, **options)
    firsts = [each.times[0] for each in run.served]
    assert firsts == sorted(firsts)
    admitted = [each.phases[1] for each in run.served]
    assert admitted == sorted(admitted, key=lambda phase: phase[1])


@given(LOADS)
def test_iterations_follow_one_another_and_a_server_with_work_is_never_idle(load):
    listed, options, engine = load
    run = inference.serve(listed, engine, **options)
    present = [(each.request.arrival, each.times[-1]) for each in run.served]
    for before, after in pairwise(run.iterations):
        assert before.end <= after.start
        if before.end < after.start:
            assert not any(arrival < before.end < done for arrival, done in present)


@given(LOADS)
def test_a_policy_keeps_its_promise(load):
    listed, options, engine = load
    run = inference.serve(listed, engine, **options)
    for each in run.iterations:
        if options["policy"] == "chunked":
            assert each.prompt_tokens + each.decoded <= max(options["budget"], each.decoded)
        else:
            assert not (each.prompt_tokens and each.decoded)
    if options["policy"] == "chunked" and options["pages"] is None:
        starts = [each.start for each in run.iterations]
        for each in run.served:  # who decodes takes a token in every step until the last
            begun = starts.index(each.times[0]) if len(each.times) > 1 else 0
            ends = [step.end for step in run.iterations[begun : begun + len(each.times) - 1]]
            assert ends == each.times[1:]


def test_one_request_alone_takes_the_seconds_of_its_steps():
    for policy in inference.POLICIES:
        (alone,) = inference.serve([Request(1.5, 1000, 3)], H100, policy, 4096).served
        steps = [
            inference.step(LLAMA, 1000, 0),
            inference.step(LLAMA, 1, 1000),
            inference.step(LLAMA, 1, 1001),
        ]
        device = hardware.ACCELERATORS["h100"]
        seconds = [
            0.0005
            + max(step.flops / device.peak["bf16"], step.weight_bytes / device.bandwidth) / 0.6
            + step.cache_bytes / device.bandwidth / 0.6
            for step in steps
        ]
        assert inference.ttft(alone) == pytest.approx(seconds[0])
        assert inference.gaps(alone) == pytest.approx(seconds[1:])


@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_a_step_on_several_ranks_is_that_of_their_slice_and_sends_what_a_decode_step_does(ranks):
    """2L + 1 all-reduces and an all-gather, by NCCL's fastest protocol for the size."""
    model = PRESETS["llama3-70b"]
    engine, part = inference.engine(model, "h100", ranks), inference.tensor_slice(model, ranks)
    alone = inference.engine(part, "h100")
    for tokens in (1, 64, 512, 8192):
        cached = 20 * tokens
        _, sending = inference.decode_seconds(model, ranks, "h100", "nvlink-4", 19, tokens)
        assert engine.sending(tokens) == pytest.approx(sending)
        seconds = engine.seconds(tokens, 20 * tokens, cached)
        assert seconds == pytest.approx(alone.seconds(tokens, 20 * tokens, cached) + sending)
    assert alone.sending(512) == inference.constant(1).sending(512) == 0


@pytest.mark.parametrize("name", ["gpt2", "llama3-8b", "served"])
def test_a_step_of_many_sequences_costs_what_the_roofline_says(name):
    model = PRESETS[name]
    step, device = inference.step(model, 1, 700, 33), hardware.ACCELERATORS["a100-80gb"]
    flops, weights = step.flops / device.peak["bf16"], step.weight_bytes / device.bandwidth
    expected = max(flops, weights) + step.cache_bytes / device.bandwidth
    seconds = inference.engine(model, "a100-80gb").seconds(33, 33 * 701, 33 * 701)
    assert seconds == pytest.approx(expected)


def waits(rate, seconds, count=5_000, seeds=range(1, 11)):
    """Mean seconds in the queue of prompts of one step, and the error of that mean, from several runs."""
    means = []
    for seed in seeds:
        listed = inference.requests(inference.poisson(rate, count, seed), 1, 1)
        run = inference.serve(listed, inference.constant(seconds), "continuous", slots=1)
        means.append(inference.mean(inference.ttft(each) - seconds for each in run.served))
    middle = inference.mean(means)
    spread = math.sqrt(sum((each - middle) ** 2 for each in means) / (len(means) - 1) / len(means))
    return middle, spread


@pytest.mark.parametrize("load", [0.4, 0.8])
def test_the_queue_of_one_prompt_at_a_time_is_md1(load):
    wait, error = waits(load / 0.05, 0.05)
    expected = inference.mean_wait(load / 0.05, 0.05)
    assert abs(wait - expected) < 4 * error and error < 0.05 * expected


@pytest.mark.parametrize("rate, seconds", [(1, 0.5), (4, 0.2), (10, 0.01), (0, 2)])
def test_distserves_closed_forms(rate, seconds):
    r, d, k = rate, seconds, 1.6
    assert inference.prefill(r, d) == pytest.approx(d + r * d**2 / (2 * (1 - r * d)))
    assert inference.pipelined_prefill(r, d) == pytest.approx(d + r * d**2 / (4 * (2 - r * d)))
    assert inference.tensor_parallel_prefill(r, d, k) == pytest.approx(
        d / k + r * d**2 / (2 * k * (k - r * d))
    )


def test_two_stages_in_a_row_wait_as_distserve_says():
    rate, seconds = 6.0, 0.2  # one device could not keep up
    wait, error = waits(rate, seconds / 2, 2000)
    second, free = [], 0.0  # the second stage, simulated here: it must never make anyone wait
    listed = inference.requests(inference.poisson(rate, 1000), 1, 1)
    for each in inference.serve(listed, inference.constant(seconds / 2), "continuous", slots=1).served:
        second.append(max(0.0, free - each.times[0]))
        free = max(free, each.times[0]) + seconds / 2
    assert max(second) < 1e-9
    assert abs(seconds + wait - inference.pipelined_prefill(rate, seconds)) < 4 * error


def test_tensor_parallelism_is_better_at_low_rates_and_a_pipeline_at_high_ones():
    slow, fast = 0.5, 5.5  # of 5 requests a second that one device could serve
    assert inference.tensor_parallel_prefill(slow, 0.2, 1.5) < inference.pipelined_prefill(slow, 0.2)
    assert inference.tensor_parallel_prefill(fast, 0.2, 1.5) > inference.pipelined_prefill(fast, 0.2)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pieces_of_prompts_shorten_the_longest_gap_and_whole_prompts_the_first_token(seed):
    listed = inference.requests(
        inference.poisson(8, 300, seed),
        inference.lengths(256, 3072, 300, seed),
        inference.lengths(16, 112, 300, seed),
    )
    runs = {policy: inference.serve(listed, H100, policy) for policy in inference.POLICIES}
    longest = {name: max(max(inference.gaps(each)) for each in run.served) for name, run in runs.items()}
    first = {name: inference.mean(map(inference.ttft, run.served)) for name, run in runs.items()}
    assert longest["chunked"] < longest["continuous"] / 5
    assert first["continuous"] < first["chunked"] < first["static"]
    good = {name: inference.goodput(run, 0.5, 0.02) for name, run in runs.items()}
    assert good["chunked"] > good["continuous"] and good["chunked"] > good["static"]


def test_a_small_pool_takes_pages_away_and_the_work_is_done_again():
    listed = inference.requests([0, 0, 0, 0], 64, 64)
    large, small = (inference.serve(listed, H100, pages=pages) for pages in (32, 20))
    assert sum(map(inference.preemptions, large.served)) == 0 == inference.recomputed_tokens(large)
    lost = [inference.preemptions(each) for each in small.served]
    assert lost[0] == 0 and lost[-1] > 0  # the first to come is the last to lose its pages
    assert inference.recomputed_tokens(small) >= 64 * sum(lost)
    assert inference.most_pages(small) == 20


@pytest.mark.parametrize("variation", [0.5, 1.0, 2.0])
def test_gamma_arrivals_have_the_mean_and_the_variation_asked_for(variation):
    times = [0.0, *inference.gamma(4.0, 20_000, variation, 3)]
    between = [after - before for before, after in pairwise(times)]
    mean = inference.mean(between)
    deviation = math.sqrt(inference.mean((each - mean) ** 2 for each in between))
    assert mean == pytest.approx(0.25, rel=5 * variation / math.sqrt(20_000))
    assert deviation / mean == pytest.approx(variation, rel=0.05)


def test_poisson_arrivals_are_as_often_late_as_an_exponential_is():
    times = [0.0, *inference.poisson(2.0, 20_000, 5)]
    between = [after - before for before, after in pairwise(times)]
    for seconds in (0.1, 0.5, 2.0):
        later = sum(each > seconds for each in between) / len(between)
        share = math.exp(-2 * seconds)
        assert abs(later - share) < 4 * math.sqrt(share * (1 - share) / len(between))


def test_runs_of_different_seeds_are_independent():
    count = 200
    ends = [inference.poisson(1.0, count, seed)[-1] for seed in range(400)]  # each the sum of `count` gaps
    mean = inference.mean(ends)
    variance = inference.mean((each - mean) ** 2 for each in ends)
    assert abs(mean - count) < 4 * math.sqrt(count / 400)
    assert abs(variance / count - 1) < 4 * math.sqrt(2 / 400)
    assert abs(inference.mean((a - mean) * (b - mean) for a, b in pairwise(ends))) < 4 * count / math.sqrt(
        400
    )


def test_lengths_reach_both_ends_and_seeds_differ():
    drawn = inference.lengths(3, 6, 400)
    assert set(drawn) == {3, 4, 5, 6} and min(map(drawn.count, set(drawn))) > 60
    assert inference.lengths(3, 6, 400, 2) != drawn == inference.lengths(3, 6, 400)
    assert inference.evenly(4, 3) == [0.25, 0.5, 0.75]


def test_a_percentile_is_one_of_the_values():
    assert [inference.percentile([4, 1, 3, 2], share) for share in (0, 0.25, 0.5, 0.51, 1)] == [1, 1, 2, 3, 4]


@POLICY
def test_ten_thousand_requests_are_simulated_in_seconds(policy):
    listed = inference.requests(inference.poisson(12, 10_000), inference.lengths(64, 512, 10_000), 32)
    began = time.process_time()
    run = inference.serve(listed, H100, policy, slots=32)
    assert len(run.served) == 10_000 and time.process_time() - began < 10


@given(acceptance=st.floats(0, 1), guesses=st.integers(0, 30), cost=st.floats(0, 1))
def test_speculation_is_leviathans_closed_forms(acceptance, guesses, cost):
    expected = inference.expected_tokens(acceptance, guesses)
    if acceptance < 0.99:
        assert expected == pytest.approx((1 - acceptance ** (guesses + 1)) / (1 - acceptance))
    assert 1 <= expected <= guesses + 1
    speed_up = inference.speculation_speed_up(acceptance, guesses, cost)
    assert speed_up == pytest.approx(expected / (guesses * cost + 1))
    if acceptance > cost and guesses:  # corollary 3.9: one guess at least pays
        assert inference.speculation_speed_up(acceptance, 1, cost) >= 1
    assert inference.speculation_flops(acceptance, guesses) == pytest.approx((guesses + 1) / expected)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: inference.serve([Request(0, 9, 1)], H100, "orca"), "policy must be one of 'static', 'con"),
        (
            lambda: inference.serve([Request(0, 9, 1)], H100, budget=0),
            "budget must be a whole number of at l",
        ),
        (lambda: inference.serve([], H100), "there are no requests: give at least one"),
        (lambda: inference.serve([Request(0, 9, 0)], H100), "output must be a whole number of at least 1"),
        (lambda: inference.serve([Request(0, 9, 8)], H100, pages=1, page=15), "needs 2 pages of 15 .* has 1"),
        (lambda: inference.serve([Request(1, 9, 1), Request(0, 9, 1)], H100), "request 1 arrives at 0 s"),
        (lambda: inference.requests([1, 2], [3], 4), "prompts must be one number, or one for each of 2"),
        (lambda: inference.mean_wait(10, 0.1), "10 requests a second of 0.1 s each .* lower the rate"),
        (lambda: inference.percentile([], 0.5), "there are no values to take a percentile of"),
        (lambda: inference.percentile([1], 1.5), "share must be a part from 0 to 1, not 1.5"),
        (lambda: inference.mean([]), "there are no values to take the mean of"),
        (lambda: inference.engine(LLAMA, "h100", efficiency=1.5), "efficiency must be a part of the peak"),
        (lambda: inference.engine(PRESETS["mixtral-8x7b"], "h100"), "8 experts"),
        (lambda: inference.expected_tokens(1.5, 2), "acceptance must be a probability from 0 to 1, not 1.5"),
        (lambda: inference.poisson(0, 2), "rate must be a number above 0, not 0"),
    ],
)
def test_what_cannot_be_served_is_refused_with_what_to_do(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_weights_are_those_of_the_model():
    assert H100.weights * 0.6 * 3.35e12 + 2 * LLAMA.vocabulary * LLAMA.hidden == pytest.approx(
        2 * transformer.parameters(LLAMA)
    )
