"""Activations: Korthikanti's table, and the tensors that autograd keeps for real layers, byte for byte."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from on_gpu.megatron_layer import Layer

from allranks import memory, schedules
from allranks.model import GPT, PIXELS, loss_of
from allranks.transformer import PRESETS, RECOMPUTATION, decoder

GPT_3, RUNNING = PRESETS["gpt3-175b"], PRESETS["running"]
WAYS = st.sampled_from([1, 2, 4, 8])


@st.composite
def plain_decoders(draw):
    """GPT-2's shape in any size, with heads for eight ranks."""
    heads = 8 * draw(st.integers(1, 4))
    return decoder(draw(st.integers(1, 9)), heads * draw(st.integers(1, 9)), heads, 8 * 7, 8)


def in_sbh(model, *where, **how):
    """A layer's bytes divided by sbh."""
    nbytes = memory.layer_activation_bytes(model, *where, **how)
    return nbytes / (where[0] * model.sequence * model.hidden)


@given(plain_decoders(), st.integers(1, 9), WAYS, st.booleans())
def test_what_is_not_gathered_again_stays_whole(model, b, t, selective):
    how = "selective" if selective else "none"
    core = 0 if selective else 5 * model.heads * model.sequence / model.hidden
    kept = in_sbh(model, b, t, True, how, regather=False)
    assert kept == pytest.approx(4 + 30 / t + core / t)


def test_experts_gather_nothing_so_they_have_nothing_to_keep_whole():
    with pytest.raises(ValueError, match="regather must be True for a model with 8 experts"):
        memory.layer_activation_bytes(PRESETS["mixtral-8x7b"], 1, 2, True, regather=False)


@given(plain_decoders(), st.integers(1, 9), WAYS)
def test_a_layer_keeps_what_table_2_says(model, b, t):
    quadratic = 5 * model.heads * model.sequence / model.hidden
    table = {
        (1, False, "none"): 34 + quadratic,
        (t, False, "none"): 10 + 24 / t + quadratic / t,
        (t, True, "none"): 34 / t + quadratic / t,
        (t, False, "selective"): 10 + 24 / t,
        (t, True, "selective"): 34 / t,
        (t, False, "full"): 2,
    }
    for (ways, split, recomputation), published in table.items():
        assert in_sbh(model, b, ways, split, recomputation) == pytest.approx(published)


def test_scores_take_80_sbh_in_gpt_3_and_64_in_mt_nlg():
    for name, published in (("gpt3-175b", 80), ("mt-nlg-530b", 64)):
        model = PRESETS[name]
        assert in_sbh(model, 1) - in_sbh(model, 1, 1, False, "selective") == published


@given(plain_decoders(), st.integers(1, 50), WAYS)
def test_another_feed_forward_adds_what_megatron_s_estimator_adds(model, times, t):
    """Its theoretical_memory_usage.py, with sequence parallelism and selective recomputation."""
    f = 8 * times
    wider = decoder(1, model.hidden, model.heads, 8, 8, feed_forward=f)
    assert in_sbh(wider, 1, t, True, "selective") == pytest.approx((18 + 4 * f / model.hidden) / t)


@given(plain_decoders(), WAYS, st.booleans(), st.sampled_from(RECOMPUTATION), st.booleans(), st.booleans())
def test_ranks_and_recomputation_never_cost_memory(model, t, split, recomputation, fused, dropout):
    how = {"fused": fused, "dropout": dropout}
    here = in_sbh(model, 1, t, split, recomputation, **how)
    assert here <= in_sbh(model, 1, 1, False, recomputation, **how)
    assert here <= in_sbh(model, 1, t, split, "none", **how)
    assert here <= in_sbh(model, 1, t, False, recomputation, **how)
    if fused:
        assert here <= in_sbh(model, 1, t, split, recomputation, dropout=dropout)


@given(plain_decoders(), st.integers(1, 4), WAYS, st.booleans(), st.sampled_from(RECOMPUTATION))
def test_what_is_kept_and_what_comes_back_are_the_whole_layer(model, b, t, split, recomputation):
    where = (model, b, t, split)
    kept = memory.layer_activation_bytes(*where, recomputation)
    again = memory.recomputed_bytes(*where, recomputation)
    assert kept + again == pytest.approx(memory.layer_activation_bytes(*where))


@given(st.integers(1, 16), st.integers(1, 8))
def test_the_first_stage_holds_all_layers_and_interleaving_more(stages, chunks):
    assert memory.in_flight(0, stages) == stages
    interleaved = stages * (1 + (stages - 1) / (stages * chunks))
    if chunks > 1:
        assert memory.in_flight(0, stages, chunks=chunks) == pytest.approx(interleaved)
    held = [memory.in_flight(stage, stages, chunks=chunks) for stage in range(stages)]
    assert held == sorted(held, reverse=True)
    assert memory.in_flight(0, stages, 3 * stages, chunks) == held[0]
    assert memory.in_flight(stages - 1, stages, 7, schedule="gpipe") == 7


@given(st.integers(1, 8), st.integers(1, 30), st.integers(1, 4))
def test_what_is_in_flight_is_the_schedule_s_peak(stages, microbatches, chunks):
    name = "interleaved" if chunks > 1 else "one_f_one_b"
    peak = schedules.peak_activations(name, stages, microbatches, chunks)
    held = [memory.in_flight(stage, stages, microbatches, chunks) for stage in range(stages)]
    assert held == pytest.approx(list(peak))


@pytest.mark.parametrize("t, split", [(1, False), (8, True)])
def test_embedding_and_output_layer_add_what_section_4_3_says(t, split):
    model = decoder(96, 12288, 96, 51200, 2048)
    sbh, layers = 2048 * 12288, 96
    inside = layers * memory.layer_activation_bytes(model, 1, t, split)
    more = memory.activation_bytes(model, 1, t, split) - inside
    assert more == pytest.approx(sbh / t * (1 + 4 * (1 + 51200 / 12288)))
    pipelined = memory.activation_bytes(model, 1, t, split, pipeline_parallel=8) - inside
    assert pipelined == pytest.approx(sbh / t * 8)


def test_context_parallel_ranks_divide_everything():
    whole = memory.activation_bytes(GPT_3, 1, 8, True)
    assert memory.activation_bytes(GPT_3, 1, 8, True, context_parallel=4) == whole / 4


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="heads must be a multiple of tensor_parallel = 5, not 96"):
        memory.layer_activation_bytes(GPT_3, 1, 5)
    with pytest.raises(ValueError, match="microbatches must be given for gpipe"):
        memory.in_flight(0, 4, schedule="gpipe")


# Against what autograd keeps


def kept_for_backward(forward, parameters):
    """The tensors, other than parameters, that `forward()` leaves for backward: storages, each once."""
    weights, kept = {p.untyped_storage().data_ptr() for p in parameters}, {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = forward()
    assert output.grad_fn is not None
    return list(kept.values())


@pytest.mark.parametrize("b, s, h, a", [(2, 64, 32, 4), (1, 16, 64, 8), (3, 32, 48, 2)])
def test_a_real_layer_keeps_exactly_the_tensors_of_korthikanti(b, s, h, a):
    model = decoder(1, h, a, 50, s)
    layer = Layer(model).to(torch.bfloat16)
    x = torch.randn(b, s, h, dtype=torch.bfloat16, requires_grad=True)
    kept = kept_for_backward(lambda: layer(x), layer.parameters())
    sizes = [nbytes for nbytes, tensor in kept if tensor.shape[-1] != 1]  # without statistics
    assert sum(sizes) == s * b * h * 34 + 5 * a * s * s * b
    listed = [tensor.nbytes for tensor in memory.layer_tensors(model, b) if tensor.part != "small"]
    assert sorted(sizes) == sorted(listed)


@pytest.mark.parametrize(
    "gated, dropout, fused",
    [(False, 0, False), (False, 0.1, False), (False, 0, True), (True, 0, False), (True, 0.1, False)],
)
def test_a_real_layer_in_fp32_keeps_every_byte_that_is_listed(gated, dropout, fused):
    model = decoder(1, 32, 4, 50, 16, gated=gated, biases=not gated, feed_forward=80)
    layer, x = Layer(model, dropout, fused), torch.randn(2, 16, 32, requires_grad=True)
    kept = [nbytes for nbytes, _ in kept_for_backward(lambda: layer(x), layer.parameters())]
    listed = memory.layer_tensors(model, 2, element=4, dropout=bool(dropout), fused=fused)
    assert sorted(kept) == sorted(size for tensor in listed for size in split(tensor, gated))


def split(tensor, gated):
    """The size of a tensor; the statistics of a LayerNorm are two, mean and deviation."""
    if tensor.name.startswith("statistics") and not gated:
        return [tensor.nbytes // 2] * 2
    return [tensor.nbytes]


@pytest.mark.parametrize("batch", [2, 5])
def test_the_running_model_keeps_every_byte_that_is_predicted(batch):
    model = GPT()
    tokens = torch.randint(28, (batch, PIXELS + 1))
    kept = kept_for_backward(lambda: loss_of(model, tokens), model.parameters())
    how = {"element": 4, "dropout": False, "fused": True}
    predicted = RUNNING.layers * memory.layer_activation_bytes(RUNNING, batch, small=True, **how)
    predicted += memory.output_activation_bytes(RUNNING, batch, element=4)
    small = 2 * 4 * batch * PIXELS  # the last norm's statistics
    indices = 8 * (tokens.numel() + PIXELS + batch * PIXELS)  # tokens, positions, targets
    targets = 4  # how many the mean is taken over
    assert sum(nbytes for nbytes, _ in kept) == predicted + small + indices + targets


def test_selective_recomputation_of_gpt_3_saves_seventy_percent():
    everything, kept = (in_sbh(GPT_3, 1, 8, True, how) for how in ("none", "selective"))
    assert math.isclose(1 - kept / everything, 80 / 114)
