"""A pipeline's step takes the planner what `simulate` says, with pieces of any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import A100, GRAND_TETON, H100, few

from allranks import hardware, memory, plan, schedules, transformer
from allranks.simulate import simulate
from allranks.transformer import PRESETS


def by_simulation(model, layout, bandwidth):
    """Seconds of a pipeline's step by `simulate`, and the planner's seconds for the same."""
    link = hardware.Link("made up", 0.0, bandwidth, "", "")
    took = plan.parts(model, layout, A100, inside=link, between=link, devices_per_node=1)
    speed = A100.peak["bf16"] * 0.6
    forward = [each * transformer.layer_flops(model) / speed for each in layers_of(model, layout)]
    again = [each if layout.recomputation == "full" else 0.0 for each in forward]
    forward[-1] += transformer.logits_flops(model) / speed
    name = (layout.pp, layout.microbatches)
    made = schedules.interleaved(*name, layout.chunks) if layout.chunks > 1 else schedules.one_f_one_b(*name)
    backward = [one + other for one, other in zip(forward, again, strict=True)]
    played = simulate(made, forward, backward, forward, model.sequence * model.hidden * 2 / bandwidth)
    return played.makespan, took.seconds - took.optimizer - took.data


def layers_of(model, layout):
    return memory.pieces(model.layers, layout.pp, layout.chunks)


@given(
    st.integers(2, 6), st.integers(2, 4), st.integers(1, 3), st.integers(1, 24), st.booleans(),
    st.sampled_from([1e12, 1e20]),
)  # fmt: skip
@few
def test_an_interleaved_step_is_the_simulated_one(stages, chunks, each, microbatches, full, bandwidth):
    model = transformer.decoder(stages * chunks * each, 1024, 8, 1, 1024)
    recomputation = "full" if full else "none"
    layout = plan.layout(pp=stages, chunks=chunks, microbatches=microbatches, recomputation=recomputation)
    simulated, ours = by_simulation(model, layout, bandwidth)
    exact = bandwidth == 1e20 or (microbatches % stages == 0 and stages > 2)
    assert ours == pytest.approx(simulated, rel=2e-4 if exact else 5e-3)


@pytest.mark.parametrize("stages, chunks, microbatches", [(8, 1, 16), (8, 2, 32), (8, 4, 32)])
def test_interleaving_hides_what_is_sent_and_1f1b_does_not(stages, chunks, microbatches):
    model = transformer.decoder(32, 1024, 8, 1, 1024)
    layout = plan.layout(pp=stages, chunks=chunks, microbatches=microbatches)
    slow = hardware.Link("slow", 0.0, 1e11, "", "")
    options = {"inside": slow, "between": slow, "devices_per_node": 1}
    exposed, total = plan.priced(model, layout, A100, **options)
    if chunks == 1:
        assert exposed.pipeline == total.pipeline
        return
    one = 2 * total.pipeline / (2 * chunks * microbatches)  # there and back
    assert exposed.pipeline == pytest.approx((chunks - 1) * stages * one)
    exposed, total = plan.priced(model, layout, A100, overlap=0.0, **options)
    assert exposed.pipeline == total.pipeline


@pytest.mark.parametrize(
    "name, stages, chunks, microbatches, above, below",
    [
        ("llama3-405b", 16, 1, 16, 0.0, 0.01),
        ("llama3-405b", 16, 7, 16, 0.05, 0.0),  # pieces of one and of two layers
        ("llama3-405b", 16, 8, 16, 0.0, 0.02),  # two of 128 pieces are empty
        ("megatron-530b", 35, 3, 105, 0.0, 0.0001),
        ("megatron-146b", 8, 4, 96, 0.02, 0.0),
    ],
)
def test_uneven_pieces_take_what_the_simulation_says_to_five_percent(
    name, stages, chunks, microbatches, above, below
):
    layout = plan.layout(pp=stages, chunks=chunks, microbatches=microbatches)
    simulated, ours = by_simulation(PRESETS[name], layout, 1e20)
    assert (1 - above) * simulated <= ours <= (1 + below) * simulated


def test_llama_3_s_two_empty_pieces_give_the_published_bubble():
    """Grattafiori et al. 2024, section 3.3.2: (PP-1)/(VM) of ideal; one-layer pieces make V 8."""
    layout = plan.layout(tp=8, pp=16, dp=128, microbatches=16, chunks=8, zero_stage=2)
    model = PRESETS["llama3-405b"]
    assert layers_of(model, layout).count(0) == 2 and max(layers_of(model, layout)) == 1
    took = plan.parts(model, layout, H100, **GRAND_TETON, order=plan.LLAMA_ORDER)
    inside = took.tensor / 16
    piece = 3 * transformer.layer_flops(model) / (0.6 * H100.peak["bf16"] * 8)
    assert 15 * piece <= took.bubble <= 15 * (piece + inside)
    assert schedules.bubble_of_ideal("interleaved", 16, 16, chunks=8) == pytest.approx(0.1171875)
