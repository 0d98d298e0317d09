"""Sizes and FLOPs: equal to what torch counts on the running model, and to the published equations."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from allranks import transformer
from allranks.model import GPT, PIXELS
from allranks.transformer import PRESETS, RECOMPUTATION, decoder

RUNNING = PRESETS["running"]


def counted(step):
    """The FLOPs that torch counts while `step()` runs, with attention as plain products."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        step()
    return counter.get_total_flops()


@st.composite
def decoders(draw):
    """Any legal decoder of small sizes."""
    kv_heads, group, width = (draw(st.integers(1, 4)) for _ in range(3))
    experts = draw(st.integers(1, 4))
    return decoder(
        draw(st.integers(1, 5)),
        kv_heads * group * width * draw(st.integers(1, 3)),
        kv_heads * group,
        draw(st.integers(1, 50)),
        draw(st.integers(1, 50)),
        kv_heads=kv_heads,
        head_width=draw(st.none() | st.integers(1, 8)),
        feed_forward=draw(st.none() | st.integers(1, 50)),
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        biases=draw(st.booleans()),
        learned_positions=draw(st.booleans()),
        experts=experts,
        active_experts=draw(st.integers(1, experts)),
    )


# The running model, counted by torch


@pytest.mark.parametrize("layers, hidden, heads", [(4, 64, 4), (1, 8, 2), (3, 48, 6)])
def test_the_running_model_has_as_many_parameters_as_torch_says(layers, hidden, heads):
    with torch.device("meta"):
        model = GPT(layers, hidden, heads)
    described = decoder(layers, hidden, heads, 28, PIXELS, tied=False)
    assert transformer.parameters(described) == sum(p.numel() for p in model.parameters())
    assert transformer.layer_parameters(described) == sum(p.numel() for p in model.layers[0].parameters())
    ends = sum(p.numel() for each in (model.norm, model.head) for p in each.parameters())
    assert transformer.output_parameters(described) == ends


@pytest.mark.parametrize("batch, sequence", [(1, 64), (3, 64), (2, 10)])
def test_the_running_model_takes_as_many_flops_as_torch_counts(batch, sequence):
    model, tokens = GPT(), torch.zeros(batch, sequence, dtype=torch.long)
    forward = counted(lambda: model(tokens))
    step = counted(lambda: model(tokens).sum().backward())
    assert forward == transformer.forward_flops(RUNNING, batch, sequence)
    assert step - forward == transformer.backward_flops(RUNNING, batch, sequence)
    assert step == transformer.step_flops(RUNNING, batch, sequence=sequence)


def test_recomputing_every_layer_takes_as_many_flops_as_torch_counts():
    model, tokens = GPT(), torch.zeros(2, PIXELS, dtype=torch.long)
    for layer in model.layers:
        layer.forward = lambda x, run=layer.forward: checkpoint(run, x, use_reentrant=False)
    with set_checkpoint_early_stop(False):
        assert counted(lambda: model(tokens).sum().backward()) == transformer.step_flops(RUNNING, 2, "full")


def test_torch_stops_a_recomputation_early_and_saves_the_last_product_of_a_layer():
    model, tokens = GPT(), torch.zeros(2, PIXELS, dtype=torch.long)
    for layer in model.layers:
        layer.forward = lambda x, run=layer.forward: checkpoint(run, x, use_reentrant=False)
    last_product = 2 * 2 * PIXELS * 4 * RUNNING.hidden**2
    saved = transformer.step_flops(RUNNING, 2, "full") - counted(lambda: model(tokens).sum().backward())
    assert saved == RUNNING.layers * last_product


def test_recomputing_attention_takes_as_many_flops_as_torch_counts(monkeypatch):
    attention = torch.nn.functional.scaled_dot_product_attention

    def again(*tensors, **options):
        return checkpoint(attention, *tensors, use_reentrant=False, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", again)
    model, tokens = GPT(), torch.zeros(2, PIXELS, dtype=torch.long)
    with set_checkpoint_early_stop(False):
        step = counted(lambda: model(tokens).sum().backward())
    assert step == transformer.step_flops(RUNNING, 2, "selective")


# The published equations


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("megatron")])
def test_narayanans_equations_are_the_general_count_for_gpt_shapes(name):
    model = PRESETS[name]
    l, h, V, s = model.layers, model.hidden, model.vocabulary, model.sequence  # noqa: E741
    equation_2 = 12 * l * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * l * h))
    assert transformer.parameters(model) == pytest.approx(equation_2 + 2 * h, rel=1e-14)
    equation_3 = 96 * 7 * s * l * h**2 * (1 + s / (6 * h) + V / (16 * l * h))
    assert transformer.step_flops(model, 7, "full") == pytest.approx(equation_3, rel=1e-14)
    korthikanti = 72 * 7 * s * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h))
    assert transformer.step_flops(model, 7) == pytest.approx(korthikanti, rel=1e-14)
    # Appendix A of Korthikanti et al. says 2Bs²h + 2Bs²h a layer more; its equation 8 prints s/(3h).
    selective = 72 * 7 * s * l * h**2 * (1 + 2 * s / (9 * h) + V / (12 * l * h))
    assert transformer.step_flops(model, 7, "selective") == pytest.approx(selective, rel=1e-14)


@given(decoders(), st.integers(1, 4))
def test_a_token_costs_6_flops_a_parameter_that_multiplies_and_12_for_each_position_it_sees(model, batch):
    # Chowdhery et al. 2022, appendix B: 6N + 12LHQT
    weights = transformer.parameters(model._replace(biases=False, experts=model.active_experts))
    weights -= (2 * model.layers + 1) * model.hidden + transformer.embedding_parameters(model)
    weights += model.vocabulary * model.hidden * model.tied
    weights -= model.layers * transformer.router_parameters(model._replace(experts=model.active_experts))
    weights += model.layers * transformer.router_parameters(model)
    attention = model.layers * model.heads * model.head_width * model.sequence
    tokens = batch * model.sequence
    assert transformer.step_flops(model, batch) == tokens * (6 * weights + 12 * attention)


def test_gpt_3_takes_34_days_and_a_trillion_parameters_84():
    days = transformer.training_seconds(175e9, 300e9, 1024, 140e12) / 86400
    assert round(days) == 34
    assert round(transformer.training_seconds(1.008e12, 450e9, 3072, 163e12) / 86400) == 84


@pytest.mark.parametrize(
    "name, billions",
    [("gpt2-xl", 1.5), ("gpt3-175b", 175), ("llama2-70b", 70), ("llama3-8b", 8), ("llama3-405b", 405)],
)
def test_a_name_says_roughly_how_large_the_model_is(name, billions):
    assert transformer.parameters(PRESETS[name]) == pytest.approx(billions * 1e9, rel=0.04)


def test_mixtral_has_47_billion_parameters_of_which_a_token_meets_13():
    # Jiang et al. 2024, section 1
    model = PRESETS["mixtral-8x7b"]
    assert round(transformer.parameters(model) / 1e9) == 47
    assert round(transformer.active_parameters(model) / 1e9) == 13


# Properties


@given(decoders())
def test_the_parts_of_a_model_add_up(model):
    layers = model.layers * transformer.layer_parameters(model)
    ends = transformer.embedding_parameters(model) + transformer.output_parameters(model)
    assert transformer.parameters(model) == layers + ends
    assert transformer.active_parameters(model) <= transformer.parameters(model)
    all_active = model.experts == model.active_experts
    assert (transformer.active_parameters(model) == transformer.parameters(model)) == all_active


@given(decoders(), st.sampled_from(["layers", "vocabulary", "sequence", "feed_forward", "head_width"]))
def test_a_larger_model_has_no_fewer_parameters_and_more_flops(model, size):
    larger = model._replace(**{size: getattr(model, size) + 1})
    grows = size != "sequence" or model.learned_positions
    assert (transformer.parameters(larger) > transformer.parameters(model)) == grows
    assert transformer.step_flops(larger) > transformer.step_flops(model)


@given(decoders(), st.integers(1, 8), st.integers(1, 50))
def test_flops_of_a_step_are_forward_backward_and_what_is_recomputed(model, batch, sequence):
    sequence = min(sequence, model.sequence)
    forward = transformer.forward_flops(model, batch, sequence)
    none, selective, full = (transformer.step_flops(model, batch, each, sequence) for each in RECOMPUTATION)
    assert none == forward + transformer.backward_flops(model, batch, sequence) == 3 * forward
    assert selective - none == model.layers * transformer.attention_core_flops(model, batch, sequence)
    assert full - none == forward - transformer.logits_flops(model, batch, sequence)
    assert none < selective < full < 4 * forward
    assert none == batch * transformer.step_flops(model, 1, sequence=sequence)


@given(decoders(), st.integers(1, 8), st.floats(1e-3, 1e3), st.integers(1, 99), st.floats(1e9, 1e15))
def test_hardware_utilisation_is_model_utilisation_and_recomputation(model, batch, seconds, devices, peak):
    mfu = transformer.mfu(model, batch, seconds, devices, peak)
    hfu = [transformer.hfu(model, batch, seconds, devices, peak, each) for each in RECOMPUTATION]
    assert mfu == hfu[0] < hfu[1] < hfu[2] < 4 / 3 * mfu
    assert transformer.mfu(model, batch, seconds, devices, 2 * peak) == pytest.approx(mfu / 2)


def test_at_the_peak_utilisation_is_1():
    model = PRESETS["llama3-8b"]
    seconds = transformer.step_flops(model, 2, "full") / 1e12
    assert transformer.hfu(model, 2, seconds / 4, 4, 1e12, "full") == pytest.approx(1)


@given(st.floats(0, 1e13), st.floats(0, 1e14))
def test_recomputing_all_costs_a_third_more(parameters, tokens):
    without = transformer.training_flops(parameters, tokens)
    assert transformer.training_flops(parameters, tokens, "full") == pytest.approx(4 / 3 * without)


# Bad input


@pytest.mark.parametrize(
    "arguments, options, complaint",
    [
        ((0, 64, 4, 28, 64), {}, "layers must be a whole number of at least 1, not 0"),
        ((4, 64.0, 4, 28, 64), {}, "hidden must be a whole number of at least 1, not 64.0"),
        ((4, 64, 5, 28, 64), {}, "hidden must be a multiple of heads = 5, not 64"),
        ((4, 64, -4, 28, 64), {}, "heads must be a whole number of at least 1, not -4"),
        ((4, 64, 4, True, 64), {}, "vocabulary must be a whole number of at least 1, not True"),
        ((4, 64, 4, 28, float("nan")), {}, "sequence must be a whole number of at least 1, not nan"),
        ((4, 64, 4, 28, 64), {"kv_heads": 3}, "heads must be a multiple of kv_heads = 3, not 4"),
        ((4, 64, 4, 28, 64), {"kv_heads": 8}, "kv_heads must be a whole number from 1 to 4, not 8"),
        ((4, 64, 4, 28, 64), {"head_width": 0}, "head_width must be a whole number of at least 1, not 0"),
        ((4, 64, 4, 28, 64), {"feed_forward": 0}, "feed_forward must be a whole number of at least 1, not 0"),
        ((4, 64, 4, 28, 64), {"gated": "yes"}, "gated must be one of False, True, not 'yes'"),
        ((4, 64, 4, 28, 64), {"experts": 0}, "experts must be a whole number of at least 1, not 0"),
        (
            (4, 64, 4, 28, 64),
            {"experts": 2, "active_experts": 3},
            "active_experts must be a whole number from 1 to 2, not 3",
        ),
    ],
)
def test_a_decoder_that_cannot_be_is_refused(arguments, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        decoder(*arguments, **options)


@pytest.mark.parametrize(
    "function, arguments, complaint",
    [
        ("forward_flops", (RUNNING, 0), "batch must be a whole number of at least 1, not 0"),
        ("forward_flops", (RUNNING, 1, 65), "sequence must be a whole number from 1 to 64, not 65"),
        ("step_flops", (RUNNING, 1, "some"), "recomputation must be one of 'none', 'selective', 'full'"),
        ("training_flops", (-1, 1), "parameters must be a number of at least 0, not -1"),
        ("training_flops", (1, float("nan")), "tokens must be a number of at least 0, not nan"),
        ("training_flops", (1, 1, "selective"), "recomputation must be one of 'none', 'full'"),
        ("training_seconds", (1, 1, 0, 1), "devices must be a whole number of at least 1, not 0"),
        ("training_seconds", (1, 1, 1, 0), "flops_per_second must be a number above 0, not 0"),
        ("mfu", (RUNNING, 1, 0, 1, 1), "seconds must be a number above 0, not 0"),
        ("mfu", (RUNNING, 1, 1, 1.5, 1), "devices must be a whole number of at least 1, not 1.5"),
        ("hfu", (RUNNING, 1, 1, 1, float("inf"), "full"), "peak must be a number above 0, not inf"),
    ],
)
def test_a_question_that_has_no_answer_is_refused(function, arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        getattr(transformer, function)(*arguments)


def test_rotary_positions_have_no_longest_sequence():
    model = PRESETS["llama3-405b"]
    assert transformer.forward_flops(model, 1, 131072) > 16 * transformer.forward_flops(model, 1, 8192)
