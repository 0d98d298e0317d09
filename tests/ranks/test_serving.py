"""What is cached changes no logit: dense, on slices, with fewer heads; and the stored model draws digits."""

import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from allranks import inference, launch, memory
from allranks.model import GREYS, PIXELS, digits, loss_of
from allranks.serving import Cache, Llama, PagedCache, SlicedCache, attend, generate, load, merge, save
from allranks.trace import trace
from allranks.transformer import PRESETS, llama, parameters

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
SMALL = llama(2, 16, 4, 28, 128, 2, 24, head_width=8)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def new_model(shape=SMALL):
    torch.manual_seed(0)
    return Llama(shape).eval()


def some_tokens(sequences=3, count=20):
    return torch.randint(28, (sequences, count), generator=torch.Generator().manual_seed(1))


def in_pieces(model, tokens, pieces, cache):
    """The logits of all tokens, which are fed in pieces of these lengths."""
    with torch.no_grad():
        return torch.cat([model(part, cache) for part in tokens.split(pieces, 1)], 1)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("pieces", [[20], [1] * 20, [7, 1, 5, 1, 6]])
def test_any_mixture_of_prefill_and_decode_has_the_logits_of_one_pass(kv_heads, pieces):
    model, tokens = new_model(SMALL._replace(kv_heads=kv_heads)), some_tokens()
    cache = Cache(model.shape, 3, 20)
    found = in_pieces(model, tokens, pieces, cache)
    with torch.no_grad():
        torch.testing.assert_close(found, model(tokens), **CLOSE)
    assert cache.length == 20
    assert cache.stored.nbytes == memory.kv_cache_bytes(model.shape, 20, 3, element=4)


def test_attention_is_torch_s():
    q, k, v = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    at = torch.arange(9)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(attend(q, k, v, at, at)[0], expected, **CLOSE)


def test_a_query_that_sees_no_key_adds_nothing_to_the_merged_parts():
    q, k, v = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
    at = torch.tensor([1, 2, 4])
    whole, _ = attend(q, k, v, at, torch.arange(5))
    cuts = ((0, 2), (2, 5), (5, 5))
    parts = [attend(q, k[:, :, i:j], v[:, :, i:j], at, torch.arange(i, j)) for i, j in cuts]
    assert parts[1][1][0, 0, 0, 0] == -torch.inf and parts[2][0].eq(0).all()
    outs, lses = (torch.stack(each) for each in zip(*parts, strict=True))
    torch.testing.assert_close(merge(outs, lses), whole, **CLOSE)


def test_a_full_cache_says_what_to_do():
    model, cache = new_model(), Cache(SMALL, 3, 10)
    with pytest.raises(ValueError, match="0 tokens are cached and 20 arrive, but the capacity is 10"):
        model(some_tokens(), cache)


@pytest.mark.parametrize("page", [1, 4, 32])
def test_pages_hold_what_a_dense_cache_holds_wherever_they_lie(page):
    model, tokens, pieces = new_model(), some_tokens(), [7, 1, 5, *[1] * 7]
    pages = 3 * -(-20 // page)
    dense, paged = Cache(SMALL, 3, 20), PagedCache(SMALL, 3, pages, page)
    paged.free = torch.randperm(pages, generator=torch.Generator().manual_seed(0)).tolist()
    expected = in_pieces(model, tokens, pieces, dense)
    torch.testing.assert_close(in_pieces(model, tokens, pieces, paged), expected, **CLOSE)
    assert torch.equal(paged.read(0, 20), dense.read(0, 20))  # later layers have rounded otherwise
    assert sorted(paged.tables.flatten().tolist()) == list(range(pages)) and paged.free == []


def test_pages_are_taken_when_they_are_needed_and_a_pool_says_when_it_is_empty():
    model, tokens = new_model(), some_tokens()
    paged = PagedCache(SMALL, 3, 7, page=4)
    for fed, free in ((1, 4), (4, 4), (5, 1), (8, 1)):
        with torch.no_grad():
            model(tokens[:, paged.length : fed], paged)
        assert len(paged.free) == free
    with pytest.raises(
        ValueError, match="3 sequences of 9 tokens need 3 more pages of 4 tokens, and 1 are free"
    ):
        model(tokens[:, 8:9], paged)


def on_slices(pieces):
    model, tokens = new_model(), some_tokens()
    cache = SlicedCache(SMALL, 3, 20)
    with trace() as counted:
        found = in_pieces(model, tokens, pieces, cache)
    return found, cache.stored.nbytes, counted.sent


@pytest.mark.parametrize("world_size", [1, 3])
def test_slices_of_one_cache_have_the_logits_of_one_process(world_size):
    pieces = [7, *[1] * 13]
    model, tokens = new_model(), some_tokens()
    with torch.no_grad():
        expected = model(tokens)
    for found, held, sent in launch(on_slices, pieces, world_size=world_size, rules="nccl"):
        torch.testing.assert_close(found, expected, **CLOSE)
        assert held == memory.kv_cache_bytes(SMALL, -(-20 // world_size), 3, element=4)
        results = 3 * 20 * SMALL.heads * (SMALL.head_width + 1) * 4
        assert sent == SMALL.layers * (world_size - 1) * results


def test_greedy_and_drawn_sequences_repeat_and_do_not_depend_on_the_cache():
    model, first = new_model(), some_tokens(2, 3)
    for seed in (None, 5):
        tokens, logits = generate(model, first, 9, seed=seed)
        cached, same = generate(model, first, 9, Cache(SMALL, 2, 11), seed)
        assert torch.equal(tokens, cached) and tokens.shape == (2, 12) and logits.shape == (2, 9, GREYS)
        torch.testing.assert_close(logits, same, **CLOSE)
    assert not torch.equal(tokens, generate(model, first, 9, seed=6)[0])


def test_the_stored_model_has_its_shape_and_has_learned():
    model = load()
    assert model.shape == PRESETS["served"]
    assert sum(p.numel() for p in model.parameters()) == parameters(PRESETS["served"]) == 237_632
    with torch.no_grad():
        assert loss_of(model, digits()) < 1.25  # nats a pixel; guessing has log 28 = 3.33


def test_the_stored_model_draws_the_digit_it_is_asked_for():
    """Twenty drawings of each digit; the nearest mean picture names most of them."""
    data = digits()
    means = torch.stack([data[data[:, 0] == GREYS + d, 1:].float().mean(0) for d in range(10)])
    asked = torch.arange(10).repeat(20)
    model = load()
    tokens, _ = generate(model, asked[:, None] + GREYS, cache=Cache(model.shape, 200, PIXELS), seed=0)
    named = torch.cdist(tokens[:, 1:].float(), means).argmin(1)
    assert (named == asked).float().mean() > 0.8


def test_what_is_saved_is_loaded_and_what_is_no_llama_is_refused(tmp_path):
    model = new_model()
    save(model, tmp_path)
    for name, weights in load(tmp_path).state_dict().items():
        assert torch.equal(weights, model.state_dict()[name])
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_act": "gelu"}))
    with pytest.raises(ValueError, match=r"hidden_act must be 'silu' in config\.json, not 'gelu'"):
        load(tmp_path)


def test_a_step_with_a_cache_takes_as_many_flops_as_torch_counts():
    model, tokens = new_model(), some_tokens()
    cache = Cache(SMALL, 3, 20)
    for past, new in ((0, 7), (7, 1), (8, 5)):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(tokens[:, past : past + new], cache)
        assert counter.get_total_flops() == inference.step(SMALL, new, past, 3).flops
