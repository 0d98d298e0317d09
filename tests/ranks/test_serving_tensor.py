"""Tensor-parallel ranks and stages write what one process writes; each sends and holds its formula."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from allranks import inference, launch, memory
from allranks.model import DIGITS, GREYS
from allranks.serving import Cache, Llama, generate, generate_in_stages, load, parallelize
from allranks.trace import trace
from allranks.transformer import llama, parameters

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
SHAPE = llama(2, 24, 4, 28, 128, 2, 24, head_width=8)
NEW = 12


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def digits():
    return torch.arange(DIGITS)[:, None] + GREYS


def on_rank(model, first):
    model = parallelize(model)
    cache = Cache(model.shape, len(first), NEW)
    with trace() as counted, FlopCounterMode(display=False) as counter:
        tokens, logits = generate(model, first, NEW, cache)
    weights = sum(p.numel() for p in model.parameters())
    return tokens, logits, counted, counter.get_total_flops(), weights, cache.stored.nbytes


@pytest.mark.parametrize("kv_heads, ranks", [("stored", 1), ("stored", 2), ("stored", 4), (1, 2), (4, 4)])
def test_ranks_write_what_one_process_writes_and_send_compute_and_hold_the_formulas(kv_heads, ranks):
    torch.manual_seed(0)
    model = load() if kv_heads == "stored" else Llama(SHAPE._replace(kv_heads=kv_heads)).eval()
    shape, first = model.shape, digits()
    expected, logits = generate(model, first, NEW)
    best, second = logits.topk(2).values.unbind(-1)
    of_a_step = inference.tensor_messages(shape, len(first), element=4)
    mine = inference.tensor_slice(shape, ranks)
    for tokens, same, counted, flops, weights, held in launch(
        on_rank, model, first, world_size=ranks, rules="nccl"
    ):
        torch.testing.assert_close(same, logits, **CLOSE)
        assert (same - logits).abs().max() < (best - second).min(), "the tokens would be equal by luck"
        assert torch.equal(tokens, expected)
        assert counted.calls == {"all_reduce": NEW * of_a_step.all_reduces, "all_gather": NEW}
        assert counted.bytes["all_reduce"] == NEW * of_a_step.all_reduces * of_a_step.nbytes
        assert counted.bytes["all_gather"] == NEW * of_a_step.gathered
        steps = [inference.step(mine, 1, past, len(first)).flops for past in range(NEW)]
        assert flops == sum(steps)
        assert weights == parameters(mine)
        assert held == memory.kv_cache_bytes(shape, NEW, len(first), ranks, element=4)


@pytest.mark.parametrize("stages, requests", [(1, 1), (2, 2), (4, 1), (4, 3)])
def test_stages_write_what_one_process_writes_and_work_once_for_each_token(stages, requests):
    model, first = load(), digits()[:requests]
    expected, _ = generate(model, first, NEW)
    results = launch(generate_in_stages, model, first[:, 0], NEW, world_size=stages, rules="nccl")
    assert torch.equal(results[-1][0], expected[:, 1:])
    for stage, (chosen, log) in enumerate(results):
        assert stage == stages - 1 or chosen.eq(-1).all()
        for request in range(requests):
            ticks = [tick for tick, at in enumerate(log) if at == request]
            assert ticks == list(range(stage + request, stage + request + stages * NEW, stages))


def refused(model):
    try:
        parallelize(model)
    except ValueError as error:
        return str(error), model.shape


def test_ranks_that_cannot_share_the_heads_are_refused_and_the_model_stays_whole():
    for said, shape in launch(refused, load(), world_size=3):
        assert said == ("3 ranks cannot share 4 (heads) evenly: take a number of ranks that divides it")
        assert shape == load().shape


@pytest.mark.parametrize("stages, requests", [(2, 3), (3, 1)])
def test_more_requests_than_stages_and_an_uneven_share_of_layers_are_refused(stages, requests):
    said = f"{stages} stages cannot take {requests} requests through 4 layers: give at most one request"
    with pytest.raises(launch.RankFailed, match=said):
        launch(generate_in_stages, load(), digits()[:requests, 0], 2, world_size=stages)
