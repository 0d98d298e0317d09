"""The explorer of a training's memory: three calculators, each by its own rules, beside one device."""

import itertools

import pytest
from test_explorer_zero import drawn_inside

from allranks import memory
from allranks.explorers import memory as explorer
from allranks.explorers.frame import controls
from allranks.explorers.frame.words import scaled
from allranks.transformer import PRESETS, parameters


def draw(width=720, **given):
    return explorer.draw(width, **controls.settings(explorer.CONTROLS, given))


def rows(model, **given):
    """What the three calculators say: bytes of each part."""
    chosen = controls.settings(explorer.CONTROLS, given)
    elsewhere = ("model", "layers", "hidden", "sequence", "device")
    layout = {name: value for name, value in chosen.items() if name not in elsewhere}
    return [parts for _, parts in explorer.estimates(model, **layout)]


def values(control):
    if isinstance(control, controls.Toggle):
        return (False, True)
    if isinstance(control, controls.Integer):
        return (control.low, control.high)
    return tuple(value for value, _ in control.options)


@pytest.mark.parametrize("control", explorer.CONTROLS, ids=lambda control: control.name)
@pytest.mark.parametrize("model", ["own", "gpt2", "gpt3-175b", "mixtral-8x7b", "running"])
def test_every_value_of_every_control_is_drawn_or_refused_by_its_name(control, model):
    names = [each.name for each in explorer.CONTROLS]
    for width, value in itertools.product((720, 360), values(control)):
        try:
            shown = draw(width, **{"model": model, control.name: value})
        except ValueError as refused:
            assert str(refused).split()[0] in names
        else:
            root = drawn_inside(shown["svg"])
            assert root.get("viewBox") == f"0 0 {width} {464}"  # nothing jumps
            assert len(shown["text"].split()) <= 70 and shown["text"].endswith(".")


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"model": "gpt2", "tensor": 8}, "tensor must be a divisor of the 12 heads of the model, not 8"),
        ({"model": "gpt2", "pipeline": 16}, "pipeline must be at most the 12 layers of the model, not 16"),
    ],
)
def test_a_layout_that_the_model_does_not_allow_names_its_control(given, sentence):
    with pytest.raises(ValueError) as refused:
        draw(**given)
    assert str(refused.value) == sentence


def test_the_papers_row_is_training_bytes():
    model = PRESETS["gpt3-175b"]
    for stage, recomputation in itertools.product(range(4), ("none", "selective", "full")):
        given = {"tensor": 8, "pipeline": 16, "data": 4, "stage": stage, "recomputation": recomputation}
        expected = memory.training_bytes(
            model, tensor_parallel=8, pipeline_parallel=16, data_parallel=4, zero_stage=stage,
            recomputation=recomputation, sequence_parallel=True,
        )  # fmt: skip
        papers = rows(model, microbatch=1, tiles=False, **given)[0]
        assert papers == expected[2:] and sum(papers) == expected.total
        said = draw(model="gpt3-175b", microbatch=1, tiles=False, **given)["text"]
        assert f"holds {scaled(expected.total, 'B')} by the papers' formulas (weights" in said
        assert "on 512 devices" in said


def test_deepspeed_counts_20_bytes_in_stage_2_and_18_and_a_layer_in_stage_3_and_nothing_of_the_batch():
    model, ranks = PRESETS["llama2-7b"], 8
    count = parameters(model)
    assert [rows(model, stage=stage)[1] for stage in (0, 1)] == [None, None]
    for microbatch in (1, 64):
        stage_2, stage_3 = (rows(model, stage=stage, microbatch=microbatch)[1] for stage in (2, 3))
        assert sum(stage_2) == pytest.approx(2 * count + 18 * count / ranks)
        assert sum(stage_3) == pytest.approx(18 * count / ranks + 4 * count / model.layers)


@pytest.mark.parametrize("tensor, pipeline", [(1, 1), (8, 1), (8, 4)])
def test_megatron_s_report_knows_one_layer_and_one_way_to_shard(tensor, pipeline):
    """Its sum for sequence parallel and selective recomputation, written down again (GPT-3, first stage)."""
    model, b = PRESETS["gpt3-175b"], 2
    s, h, layers, vocabulary = model.sequence, model.hidden, model.layers, model.vocabulary
    split = {"tensor": tensor, "pipeline": pipeline, "recomputation": "selective", "microbatch": b}
    kept = s * b * h * (18 + 4 * model.feed_forward / h) * layers + s * b * h * pipeline
    if pipeline == 1:
        kept += 4 * s * b * h * (1 + vocabulary / h)
    for stage, data in ((0, 4), (1, 4), (3, 4)):
        megatron = rows(model, stage=stage, data=data, **split)[2]
        assert megatron[3] == pytest.approx(kept / tensor, rel=1e-4)  # V/t is rounded up
        count = memory.training_bytes(
            model, tensor_parallel=tensor, pipeline_parallel=pipeline, stage=0
        ).parameters
        assert sum(megatron[:3]) == pytest.approx((6 + 12 / data if stage else 18) * count)
    scores = rows(model, **{**split, "recomputation": "none"})[2][3]
    assert scores <= rows(model, tiles=False, **{**split, "recomputation": "none"})[0][3]


def test_at_the_first_settings_the_calculators_disagree_whether_it_fits():
    svg = draw()["svg"]
    assert svg.count(": fits<") == 2 and svg.count(": does not fit<") == 1


def test_what_megatron_s_report_leaves_out_is_said_beside_its_bar():
    everything = {"stage": 3, "recomputation": "full", "context": 2}
    assert "6 + 12/d bytes; ignores stage 3, recomputation, context<" in draw(**everything)["svg"]
    assert "18 bytes; ignores scores<" in draw(stage=0, tiles=False)["svg"]
    one, two = (rows(PRESETS["llama2-7b"], context=ways, stage=1)[2] for ways in (1, 2))
    assert one == two
    assert "6 + 12/d bytes a parameter, GPT-2's activations<" in draw(stage=1)["svg"]


def test_controls_without_effect_are_idle():
    assert draw()["idle"] == ["layers", "hidden", "split"]
    assert draw(model="own", tensor=2)["idle"] == []
