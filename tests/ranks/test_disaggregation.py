"""A cache that travels draws what one process draws; guesses change no greedy token and no distribution."""

import functools

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks import inference, launch
from allranks.model import GREYS
from allranks.serving import (
    Arriving,
    Cache,
    Llama,
    PagedCache,
    Sending,
    generate,
    load,
    lookup,
    outcomes,
    parallelize,
    receive_pages,
    send_pages,
    speculate,
)
from allranks.trace import trace
from allranks.transformer import llama

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
SMALL = llama(2, 16, 4, 28, 32, 2, 24, head_width=8)
PROMPT = torch.randint(28, (1, 12), generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small_model(kv_heads=2):
    torch.manual_seed(0)
    return Llama(SMALL._replace(kv_heads=kv_heads)).eval()


def alone(kv_heads, known, new):
    return generate(small_model(kv_heads), PROMPT[:, :known], new, seed=4)


@torch.no_grad()
def whole_pages(known, new, page):
    model = small_model()
    cache = PagedCache(model.shape, 1, 30, page)
    cache.free.reverse() if dist.get_rank() else None  # other page numbers on the other rank
    with trace() as counted:
        if dist.get_rank() == 0:
            model(PROMPT[:, : known - 1], cache)
            send_pages(cache, 1)
            return None, counted.sent
        receive_pages(cache, known - 1, 0)
        return generate(model, PROMPT[:, :known], new, cache, seed=4), counted.sent


@pytest.mark.parametrize("known, page", [(9, 4), (10, 4), (5, 8), (12, 1)])
def test_pages_that_travel_are_a_cache_for_any_numbering_and_fill(known, page):
    tokens, logits = alone(2, known, 6)
    (_, sent), ((drawn, same), nothing) = launch(whole_pages, known, 6, page, world_size=2, rules="nccl")
    assert torch.equal(drawn, tokens)
    torch.testing.assert_close(same, logits, **CLOSE)
    assert (sent, nothing) == (inference.moved_bytes(SMALL, known - 1, 1, page, element=4), 0)


@torch.no_grad()
def by_layers(kv_heads, senders, receivers, known, new, page, spare):
    rank, ranks = dist.get_rank(), senders + receivers
    world = dist.new_group(list(range(ranks)))
    pools = [dist.new_group(list(each)) for each in (range(senders), range(senders, ranks))]
    if rank >= ranks:
        return None  # a rank that belongs to neither pool
    dist.barrier(world)
    model = parallelize(small_model(kv_heads), pools[rank >= senders])
    routes = inference.routes(kv_heads, senders, receivers)
    ends = []  # messages started at the end of each layer, or layers that are still to come
    with trace() as counted:
        if rank < senders:
            cache = Sending(model.shape, 30, page, routes, world)
            watch(model, lambda: ends.append(counted.calls["send"]))
            model(PROMPT[:, : known - 1], cache)
            cache.wait()
            return None, counted, ends
        cache = Arriving(model.shape, known - 1, 30, page, routes, world)
        watch(model, lambda: ends.append(len(cache.coming)))
        drawn = generate(model, PROMPT[:, :known], new, cache, seed=4)
    return drawn, counted, ends[: model.shape.layers]


def watch(model, note):
    for layer in model.model.layers:
        layer.register_forward_hook(lambda *_: note())


@pytest.mark.parametrize(
    "kv_heads, senders, receivers, known",
    [(2, 1, 1, 9), (2, 1, 2, 10), (2, 2, 1, 12), (2, 1, 4, 9), (2, 4, 1, 9), (4, 2, 2, 10), (1, 2, 2, 6)],
)
def test_any_pair_of_pools_draws_the_same_and_moves_the_formula(kv_heads, senders, receivers, known):
    ranks = senders + receivers
    tokens, logits = alone(kv_heads, known, 5)
    results = launch(by_layers, kv_heads, senders, receivers, known, 5, 4, 0, world_size=ranks, rules="nccl")
    for (drawn, same), counted, to_come in results[senders:]:
        assert torch.equal(drawn, tokens)
        torch.testing.assert_close(same, logits, **CLOSE)
        assert to_come == [1, 0] and counted.calls["send"] == 0
    shape = SMALL._replace(kv_heads=kv_heads)
    sent = sum(counted.bytes["send"] for _, counted, _ in results)
    assert sent == inference.moved_bytes(shape, known - 1, receivers, 4, element=4)
    routes = inference.routes(kv_heads, senders, receivers)
    for rank, (_, _, started) in enumerate(results[:senders]):
        each = sum(route.sender == rank for route in routes)
        assert started == [each, 2 * each]


def test_a_group_that_is_not_the_world_can_hold_the_pools():
    tokens, _ = alone(2, 9, 3)
    *pair, other = launch(by_layers, 2, 1, 1, 9, 3, 4, 0, world_size=3, rules="nccl")
    assert torch.equal(pair[1][0][0], tokens) and other is None


@functools.cache
def digits():
    return load()


@pytest.mark.parametrize("guesses", [1, 4, 9])
@pytest.mark.parametrize("longest", [1, 3])
def test_greedy_tokens_are_those_without_guesses(guesses, longest):
    model = digits()
    expected, _ = generate(model, torch.tensor([[GREYS + 3]]), 40)
    cache = Cache(model.shape, 1, 40)
    tokens, log = speculate(
        model,
        [GREYS + 3],
        40,
        cache,
        guesses,
        draft=lambda tokens, count: lookup(tokens, count, longest),
    )
    assert tokens == expected[0].tolist()
    assert sum(kept + 1 for _, kept in log) == 40 and cache.length == 40
    assert all(0 <= kept <= count <= guesses for count, kept in log)
    assert len(log) < 40  # some guesses are right, or nothing was tried


@pytest.mark.parametrize("right", [True, False])
def test_a_draft_that_knows_writes_all_it_guesses_and_one_that_errs_costs_only_passes(right):
    model = digits()
    expected = generate(model, torch.tensor([[GREYS]]), 21)[0][0].tolist()

    def draft(tokens, count):
        coming = expected[len(tokens) :][:count]
        return coming if right else [(grey + 1) % GREYS for grey in coming]

    tokens, log = speculate(model, [GREYS], 21, Cache(model.shape, 1, 21), 4, draft=draft)
    assert tokens == expected
    assert [kept for _, kept in log] == ([4, 4, 4, 4, 0] if right else [0] * 21)


DISTRIBUTION = st.lists(st.integers(0, 6), min_size=4, max_size=4).filter(any)


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(DISTRIBUTION, min_size=3, max_size=3), st.lists(DISTRIBUTION, min_size=2, max_size=2))
def test_the_first_tokens_have_the_model_s_distribution_whatever_the_draft(p, q):
    """All guesses and outcomes listed: two positions, where the second's p and q depend on nothing else."""
    p, q = (torch.tensor(each, dtype=torch.float64) for each in (p, q))
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    both = torch.zeros(4, 4, dtype=torch.float64)
    for first in range(4):
        for second in range(4):
            chance = q[0, first] * q[1, second]
            if chance == 0:
                continue
            table = outcomes(p, q, [first, second])
            torch.testing.assert_close(table.sum(), table.new_ones(()))
            assert (table >= 0).all()
            refused, once, twice = chance * table
            both += refused[:, None] * p[1]
            both[first] += once
            both[first, second] += twice.sum()
    torch.testing.assert_close(both, p[0, :, None] * p[1])


def test_drawn_tokens_are_as_frequent_as_the_distribution_says():
    model, count = digits(), 400
    with torch.no_grad():
        p = model(torch.tensor([[GREYS + 5, 0]]))[0, -1, :GREYS].softmax(-1)
    first = torch.zeros(GREYS)
    for seed in range(count):
        cache = Cache(model.shape, 1, 4)
        tokens, _ = speculate(model, [GREYS + 5, 0], 3, cache, 2, seed=seed)
        first[tokens[2]] += 1
    error = (p * (1 - p) / count).sqrt()
    assert ((first / count - p).abs() < 5 * error + 1e-3).all()


def test_lookup_guesses_what_followed_the_longest_match():
    assert lookup([1, 2, 3, 9, 2, 3, 7, 1, 2, 3], 2) == [9, 2]
    assert lookup([5, 2, 8, 2], 4) == [8, 2]
    assert lookup([1, 2, 3], 4) == [] == lookup([1], 4)
    assert lookup([4, 4, 4], 5) == [4]
    assert lookup([1, 2, 1], 0) == []
