"""No policy changes a token: whoever waits, is preempted or finds a prefix writes what it writes alone."""

import functools
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks import launch
from allranks.serving import Cache, Engine, Llama, Pool, Request, Scheduler, generate, page_keys
from allranks.transformer import llama

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
SMALL = llama(2, 16, 4, 28, 32, 2, 24, head_width=8)
BASES = torch.randint(28, (2, 9), generator=torch.Generator().manual_seed(1))
BASES[1, :4] = BASES[0, :4]  # a page of four tokens to share


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@functools.cache
def small_model():
    torch.manual_seed(0)
    return Llama(SMALL).eval()


@functools.cache
def alone(prompt, new, seed):
    """The tokens and logits that one sequence has with a dense cache of its own."""
    cache = Cache(SMALL, 1, len(prompt) + new - 1)
    tokens, logits = generate(small_model(), torch.tensor([prompt]), new, cache, seed)
    return tokens[0].tolist(), logits[0]


class Watched(Engine):
    """An engine whose books are audited after each step."""

    def step(self):
        super().step()
        scheduler, pool = self.scheduler, self.scheduler.pool
        held = Counter(page for request in scheduler.running for page in request.pages)
        assert held == Counter({page: n for page, n in enumerate(pool.holders) if n})
        assert sorted([*held, *pool.free, *pool.idle]) == list(range(pool.size))
        assert {pool.found[key]: key for key in pool.found} == pool.key
        assert set(pool.idle) <= set(pool.key) and not set(pool.free) & set(pool.key)
        computed = sum(count for _, count in self.log[-1].values())
        assert computed <= (scheduler.budget or computed)
        assert len(scheduler.running) <= scheduler.slots
        assert all(request.missing == 1 for request in scheduler.running[:-1])  # no decode waits for a prompt
        if scheduler.waiting or scheduler.running:
            assert computed  # somebody gets on in every step
        queue = [*scheduler.running, *scheduler.waiting]
        assert queue == sorted(queue, key=lambda request: request.arrival)


def serve(requests, pool, **policy):
    engine = Watched(small_model(), Scheduler(pool, **policy))
    engine.run(requests)
    return engine


def assert_as_alone(engine, requests):
    for request in requests:
        tokens, logits = alone(tuple(request.prompt), request.new, request.seed)
        assert request.tokens == tokens
        torch.testing.assert_close(torch.stack(engine.logits[request]), logits, **CLOSE)


def request_of(base, length, new, seed, arrival):
    return Request(BASES[base, :length].tolist(), new, seed, arrival)


REQUESTS = st.lists(
    st.builds(
        request_of,
        st.sampled_from([0, 1]),
        st.sampled_from([5, 1, 8, 9, 2]),
        st.sampled_from([6, 4, 1]),
        st.sampled_from([None, 0, 1]),
        st.sampled_from([0, 1]),
    ),
    min_size=3,
    max_size=5,
)
POLICIES = st.builds(
    lambda slots, more, kind: {"slots": slots, "budget": more and slots + more, **kind},
    st.sampled_from([4, 3, 2]),
    st.sampled_from([None, 1, 4]),
    st.sampled_from([{}, {"static": True}, {}, {"reserve": True}]),
)


def pool_for(requests, page, spare, prefixes=False):
    """A pool in which the longest request just fits, and `spare` more pages."""
    most = max(len(request.prompt) + request.new - 1 for request in requests)
    return Pool(-(-most // page) + spare, page, prefixes)


@settings(max_examples=settings.default.max_examples // 4)
@given(
    REQUESTS, POLICIES, st.sampled_from([4, 2, 1]), st.sampled_from([1, 0, 3]), st.sampled_from([True, False])
)
def test_no_policy_changes_a_token(requests, policy, page, spare, prefixes):
    pool = pool_for(requests, page, spare, prefixes)
    engine = serve(requests, pool, **policy)
    assert_as_alone(engine, requests)
    assert pool.available == pool.size
    useful = sum(len(request.tokens) - 1 for request in requests)
    computed = sum(count for step in engine.log for _, count in step.values())
    reused = sum(request.reused for request in requests)
    again = sum(request.preemptions for request in requests)
    assert computed + reused >= useful
    if again == 0:
        assert computed + reused == useful
    if "reserve" in policy:
        assert again == 0


@settings(max_examples=settings.default.max_examples // 10)
@given(REQUESTS, POLICIES, st.sampled_from([0, 3]))
def test_little_s_law_holds_in_steps(requests, policy, spare):
    """Requests in the system, summed over steps, are the steps that each spends in it."""
    engine = Watched(small_model(), Scheduler(pool_for(requests, 2, spare), **policy))
    ended = {}
    leave = engine.scheduler.leave

    def note(request):
        leave(request)
        if len(request.tokens) == len(request.prompt) + request.new:
            ended[request] = len(engine.log)

    engine.scheduler.leave = note
    log = engine.run(requests)
    present = sum(phase != "idle" for step in log for phase, _ in step.values())
    assert present == sum(ended[request] - request.arrival for request in requests)


def pictures(new, length=8, **options):
    """A request for each of `new`, of prompts of `length` tokens of one base, all there at once."""
    return [request_of(0, length, count, seed, 0, **options) for seed, count in enumerate(new)]


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
@pytest.mark.parametrize("new", [(6, 1, 2, 1, 4, 1), (3,), (1, 1, 1, 5)])
def test_a_static_batch_takes_its_longest_and_a_continuous_one_the_earliest_free_slot(new, slots):
    batches = [new[first : first + slots] for first in range(0, len(new), slots)]
    engine = serve(pictures(new), Pool(40, 4), slots=slots, static=True)
    assert len(engine.log) == sum(map(max, batches))
    ends = [0] * slots
    for count in new:
        ends[ends.index(min(ends))] += count
    assert len(serve(pictures(new), Pool(40, 4), slots=slots).log) == max(ends)


def test_a_preempted_request_is_computed_again_and_not_taken_for_a_decode():
    requests = pictures((6, 6), length=3)
    engine = serve(requests, Pool(3, 4), slots=2)
    first, last = requests
    assert (first.preemptions, last.preemptions) == (0, 1)
    phases = [step[last] for step in engine.log if last in step]
    assert [phase for phase, _ in phases] == [
        "prefill",
        "decode",
        *["preempted"] * 4,
        "recompute",
        "decode",
        "decode",
        "decode",
    ]
    assert phases[6] == ("recompute", 5)  # the prompt and both tokens that it had written
    assert_as_alone(engine, requests)


@pytest.mark.parametrize("length, hits", [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8)])
def test_of_a_cached_prompt_the_last_token_is_always_computed(length, hits):
    """Also if the prompt is a multiple of the page: without its last token there are no logits."""
    first, second = request_of(0, length, 1, 0, 0), request_of(0, length, 3, 1, 1)
    engine = serve([first, second], Pool(8, 4, prefixes=True), slots=2)
    assert second.reused == hits
    assert engine.log[1][second] == ("prefill", length - hits)
    assert_as_alone(engine, [first, second])


def test_two_prompts_of_one_step_find_nothing_of_each_other():
    requests = pictures((1, 1, 1), length=9)
    serve(requests, Pool(9, 4, prefixes=True), slots=2)
    assert [request.reused for request in requests] == [0, 0, 8]


def test_a_page_is_forgotten_only_if_no_other_is_free_and_the_end_of_a_prefix_goes_first():
    pool = Pool(3, 2, prefixes=True)
    tokens = [1, 2, 3, 4, 5]
    pages = [pool.take() for _ in range(3)]
    pool.remember(pages, tokens)
    pool.release(pages)
    assert pool.available == 3 and len(pool.free) == 1
    pool.take(), pool.take()
    assert pool.share(tokens) == pages[:1]
    assert pool.available == 0


def test_the_key_of_a_page_stands_for_all_tokens_before_it():
    assert page_keys([1, 2, 3, 4, 5], 2) == page_keys([1, 2, 3, 4], 2)
    (first, second), (other, changed) = page_keys([1, 2, 3, 4], 2), page_keys([9, 2, 3, 4], 2)
    assert len({first, second, other, changed}) == 4
    assert page_keys([1, 1, 1, 1], 2)[0] != page_keys([1, 1, 1, 1], 2)[1]


@pytest.mark.parametrize("budget", [3, 5, 12])
def test_no_decode_waits_for_a_prompt_in_chunks(budget):
    requests = [*pictures((6, 6), length=1), request_of(0, 9, 2, 0, 2)]
    engine = serve(requests, Pool(20, 4), slots=3, budget=budget)
    for request in requests[:2]:
        assert [step[request] for step in engine.log if request in step][1:] == [("decode", 1)] * 5
    chunks = [step[requests[2]][1] for step in engine.log if requests[2] in step]
    assert chunks[0] == min(9, budget - 2) and sum(chunks) == 10
    assert_as_alone(engine, requests)


def shares(ranks):
    import torch.distributed as dist

    requests = [request_of(number % 2, 9, 2, number, number) for number in range(8)]
    own = requests[dist.get_rank() :: ranks]
    engine = serve(own, Pool(20, 4, prefixes=True), slots=2)
    assert_as_alone(engine, own)
    return [request.tokens for request in own]


def test_two_replicas_write_what_one_writes():
    (one,) = launch(shares, 1, world_size=1, rules="nccl")
    even, odd = launch(shares, 2, world_size=2, rules="nccl")
    assert one[::2] == even and one[1::2] == odd


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: Pool(0, 16), "0 pages of 16 tokens: a pool needs at least one"),
        (lambda: Request([], 3), "0 known and 3 new tokens: a request needs at least one of each"),
        (lambda: Request([1], 0), "1 known and 0 new tokens"),
        (lambda: Scheduler(Pool(4, 4), 0), "0 slots and a budget of None tokens"),
        (lambda: Scheduler(Pool(4, 4), 3, budget=2), "3 slots and a budget of 2 tokens: each slot needs"),
        (
            lambda: Scheduler(Pool(4, 4), 1).add(Request([1] * 9, 9)),
            "17 tokens need 5 pages of 4, and the pool has 4: enlarge the pool, or ask for fewer tokens",
        ),
    ],
)
def test_what_can_never_run_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def computed_one_by_one(prompts, pages):
    """Tokens computed of all prompts, served one at a time in this order, with pages of a single token."""
    pool, count = Pool(pages, 1, prefixes=True), 0
    for prompt in prompts:
        scheduler, request = Scheduler(pool, slots=1), Request(list(prompt), 1)
        scheduler.add(request)
        while request.missing:
            for one, tokens in scheduler.schedule():
                scheduler.advance(one, tokens)
                count += tokens
        scheduler.leave(request)
    return count


@settings(deadline=None, max_examples=50)
@given(
    prompts=st.sets(st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple), min_size=1, max_size=12)
)
def test_depth_first_order_computes_every_edge_of_the_prefix_tree_once(prompts):
    """SGLang's theorem 3.1: a cache that holds the longest request is then as good as an endless one."""
    edges = {prompt[:end] for prompt in prompts for end in range(1, len(prompt) + 1)}
    assert computed_one_by_one(sorted(prompts), max(map(len, prompts))) == len(edges)
    # A prompt that is the beginning of an earlier one still computes its last token.
    assert computed_one_by_one(sorted(prompts, reverse=True), 100) >= len(edges)
