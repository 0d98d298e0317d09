"""What one rank holds under a layout: nothing lost, nothing twice, and more ranks never need more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import memory
from allranks.memory import RECIPES, training_bytes
from allranks.transformer import PRESETS, decoder, expert_parameters, parameters

GPT_3, LLAMA = PRESETS["gpt3-175b"], PRESETS["llama3-405b"]
WAYS = st.sampled_from([1, 2, 4])


@st.composite
def decoders(draw):
    """Decoders of any kind whose sizes four ranks can share."""
    heads, experts = 4 * draw(st.integers(1, 3)), draw(st.sampled_from([1, 4, 8]))
    return decoder(
        draw(st.integers(4, 13)),
        heads * draw(st.integers(1, 9)),
        heads,
        draw(st.integers(1, 90)),
        16,
        kv_heads=draw(st.sampled_from([heads, 4, 2, 1])),
        feed_forward=4 * draw(st.integers(1, 90)),
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        biases=draw(st.booleans()),
        learned_positions=draw(st.booleans()),
        experts=experts,
        active_experts=draw(st.integers(1, experts)),
    )


@given(decoders(), WAYS, st.integers(1, 3))
def test_the_stages_together_have_all_parameters_and_a_tied_one_twice(model, stages, chunks):
    if stages * chunks > model.layers:
        return
    on_stages = [sum(memory.rank_parameters(model, 1, stages, 1, stage, chunks)) for stage in range(stages)]
    copies = model.vocabulary * model.hidden if model.tied and stages > 1 else 0
    assert sum(on_stages) == parameters(model) + copies


@given(decoders(), WAYS)
def test_the_expert_parallel_ranks_together_have_every_expert_once(model, ranks):
    if model.experts % ranks:
        return
    others, experts = memory.rank_parameters(model, expert_parallel=ranks)
    every = model.layers * model.experts * expert_parameters(model) if model.experts > 1 else 0
    assert ranks * experts == every
    assert others + every == parameters(model)


def test_a_gpt_cut_by_megatron_has_norms_and_the_biases_of_row_layers_on_every_rank():
    model, h, t = decoder(1, 64, 4, 48, 16), 64, 4
    cut = (3 * h * h + 3 * h) + h * h + (4 * h * h + 4 * h) + 4 * h * h + 48 * h
    whole = 2 * 2 * h + h + h + 16 * h + 2 * h
    assert memory.rank_parameters(model, tensor_parallel=t) == (cut // t + whole, 0)
    assert cut + whole == parameters(model)


def test_ranks_beyond_the_heads_of_keys_hold_copies():
    model = decoder(1, 64, 4, 48, 16, kv_heads=2, biases=False, learned_positions=False)
    on_two, on_four = (memory.rank_parameters(model, tensor_parallel=t)[0] for t in (2, 4))
    keys_and_values = 2 * 32 * 64
    cut = parameters(model) - keys_and_values - 3 * 64
    assert (on_two, on_four) == (
        cut // 2 + keys_and_values // 2 + 3 * 64,
        cut // 4 + keys_and_values // 2 + 3 * 64,
    )


def test_llama_s_first_and_last_stage_have_a_layer_less():
    assert memory.stage_layers(126, 16) == [7, *[8] * 14, 7]
    assert memory.stage_layers(96, 8, 3) == [12] * 8
    assert memory.pieces(126, 16, 8) == [0, *[1] * 126, 0]
    assert memory.stage_layers(126, 16, 8) == [7, *[8] * 14, 7]


@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 4))
def test_pieces_differ_by_a_layer_and_only_the_two_ends_can_be_empty(layers, stages, chunks):
    if stages * chunks > layers + 2:
        with pytest.raises(
            ValueError, match=f"layers must be a whole number of at least {stages * chunks - 2}"
        ):
            memory.pieces(layers, stages, chunks)
        return
    sizes = memory.pieces(layers, stages, chunks)
    assert sum(sizes) == layers == sum(memory.stage_layers(layers, stages, chunks))
    assert max(sizes) - min(sizes) <= 1 and all(sizes[1:-1])
    assert sizes[0] + sizes[-1] <= 2 * min(sizes[1:-1] or [layers])


@given(
    decoders(), WAYS, WAYS, WAYS, WAYS, st.integers(1, 3), st.integers(0, 3), st.booleans(),
    st.sampled_from(sorted(RECIPES)),
)  # fmt: skip
def test_a_breakdown_adds_up_and_its_fullest_stage_is_the_fullest(
    model, dp, tp, pp, cp, chunks, zero_stage, fused, recipe
):
    chunks = chunks if pp > 1 and pp * chunks <= model.layers + 2 else 1
    layout = {
        "data_parallel": dp, "tensor_parallel": tp, "pipeline_parallel": pp, "context_parallel": cp,
        "zero_stage": zero_stage, "fused": fused, "recipe": recipe, "microbatches": 8, "chunks": chunks,
    }  # fmt: skip
    fullest = training_bytes(model, **layout)
    stages = [training_bytes(model, stage=stage, **layout) for stage in range(pp)]
    assert fullest == max(stages, key=lambda each: each.total)
    for each in stages:
        assert each.total == sum(each[2:])
        assert each.states == pytest.approx(memory.zero_bytes(each.parameters, dp * cp, zero_stage, recipe))


@given(
    decoders(),
    WAYS,
    WAYS,
    WAYS,
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(["none", "selective", "full"]),
)
def test_twice_the_data_or_tensor_parallel_ranks_never_need_more(
    model, dp, tp, pp, zero_stage, split, recomputation
):
    def total(dp, tp, pp):
        return training_bytes(
            model, data_parallel=dp, tensor_parallel=tp, pipeline_parallel=pp, zero_stage=zero_stage,
            sequence_parallel=split, recomputation=recomputation,
        ).total  # fmt: skip

    buckets = 2 * 25 * 2**20  # which stage 2 has as soon as there are two ranks
    assert total(2 * dp, tp, pp) <= total(dp, tp, pp) + (buckets if dp == 1 else 0)
    if tp < 4:
        assert total(dp, 2 * tp, pp) <= total(dp, tp, pp) + 2 * model.hidden * 16


def test_gpt_3_on_one_device_has_2_8_terabytes_of_states():
    held = training_bytes(GPT_3)
    assert held.states == 16 * parameters(GPT_3)
    assert round(held.states / 1e12, 1) == 2.8
    assert held.buffers == held.recomputed == 0


def test_experts_are_sharded_over_the_ranks_that_have_the_same_ones():
    mixtral = PRESETS["mixtral-8x7b"]
    alone = training_bytes(mixtral, data_parallel=16, zero_stage=1)
    spread = training_bytes(mixtral, data_parallel=16, zero_stage=1, expert_parallel=8)
    assert spread.weights < alone.weights / 5
    assert spread.optimizer == pytest.approx(alone.optimizer)
    with pytest.raises(ValueError, match="must be a multiple of expert_parallel = 8, not 4"):
        training_bytes(mixtral, data_parallel=4, expert_parallel=8)


def test_selective_recomputation_holds_one_layer_s_scores_again_unless_they_come_in_tiles():
    scores = 80 * 2048 * 12288 / 8
    where = {"tensor_parallel": 8, "sequence_parallel": True, "recomputation": "selective"}
    assert training_bytes(GPT_3, **where).recomputed == scores
    assert training_bytes(GPT_3, fused=True, **where).recomputed == 0


def test_a_schedule_may_say_itself_what_it_holds():
    where = {"pipeline_parallel": 8, "stage": 0, "dropout": False}
    assert (
        training_bytes(GPT_3, held=4, **where).activations * 2 == training_bytes(GPT_3, **where).activations
    )


def test_stage_3_gathers_two_layers_of_weights_and_makes_one_of_gradients():
    one_layer = parameters(LLAMA) / LLAMA.layers
    held = training_bytes(LLAMA, data_parallel=1024, zero_stage=3)
    assert held.buffers == pytest.approx(6 * one_layer)
    assert training_bytes(LLAMA, zero_stage=3).buffers == 0


def test_what_no_layout_can_be_is_refused():
    for wrong, complaint in (
        ({"tensor_parallel": 7}, "heads must be a multiple of tensor_parallel = 7, not 96"),
        ({"pipeline_parallel": 99}, "layers must be a whole number of at least 97, not 96"),
        ({"zero_stage": 4}, "zero_stage must be one of 0, 1, 2, 3, not 4"),
        ({"stage": 1}, "stage must be a whole number from 0 to 0, not 1"),
        ({"expert_parallel": 2}, "must be a multiple of expert_parallel = 2, not 1"),
    ):
        with pytest.raises(ValueError) as refused:
            training_bytes(GPT_3, **wrong)
        assert complaint in str(refused.value)
