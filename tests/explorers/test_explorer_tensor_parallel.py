"""The explorer of tensor parallelism shows and says what `allranks.topology` computes."""

import random
import xml.etree.ElementTree as ElementTree

import pytest

from allranks import topology, transformer
from allranks.explorers import tensor_parallel
from allranks.explorers.frame.controls import Integer, Steps, Toggle, settings
from allranks.explorers.frame.svg import NARROW, WIDE
from allranks.explorers.frame.words import scaled

NAMES = [control.name for control in tensor_parallel.CONTROLS]


def drawn(width=WIDE, **given):
    return tensor_parallel.draw(width, **settings(tensor_parallel.CONTROLS, given))


def every_value(control):
    if isinstance(control, Toggle):
        return [False, True]
    if isinstance(control, (Integer, Steps)):
        return [0, 1, 4, 7, 8, 99]
    return [value for value, _ in control.options]


@pytest.mark.parametrize("model", ["gpt3-175b", "llama3-70b"])
@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_both_halves_of_a_layer_send_the_traffic_of_a_layer(model, ranks, sequence_parallel):
    shape = transformer.PRESETS[model]
    of_a_step = topology.traffic(shape, {"tp": ranks}, 1, 4)[0].sent
    for kind in ("feed-forward", "attention"):
        text = drawn(kind=kind, model=model, ranks=ranks, microbatch=4, sequence_parallel=sequence_parallel)[
            "text"
        ]
        assert f"A rank sends {scaled(of_a_step / shape.layers / 2, 'B')} for a micro-batch" in text
        assert ("to gather X again" in text) == sequence_parallel


def test_the_feed_forward_of_gpt_3_on_four_ranks():
    text = drawn()["text"]
    assert "each holds 12,288 × 12,288 of A and 12,288 × 12,288 of B, 604 MB of 2.42 GB" in text
    assert "Forward, f copies and g does an all-reduce of 50.3 MB" in text
    assert "backward, g copies and f does an all-reduce of 50.3 MB" in text


def test_a_pair_is_played_in_eight_steps_and_a_half_in_six():
    assert drawn(kind="feed-forward")["steps"] == 9
    assert drawn(kind="row")["steps"] == 7
    assert "Step 4 of 8, forward: g does an all-reduce" in drawn(step=4)["text"]
    assert "Step 8 of 8, backward: f does an all-reduce" in drawn(step=8)["text"]
    assert drawn(step=99)["text"] == drawn(step=8)["text"]


def test_heads_that_cannot_be_shared_are_refused():
    with pytest.raises(ValueError, match="ranks must divide 12 heads, and 12 of keys and values, not be 8"):
        drawn(kind="attention", model="gpt2", ranks=8)


def test_a_half_has_no_sequence_parallelism():
    assert drawn(kind="column", sequence_parallel=True) == drawn(kind="column")
    assert drawn(kind="column")["idle"] == ["sequence_parallel"]


def test_every_setting_is_drawn_within_its_frame_or_refused_by_name():
    rng = random.Random(6)
    for turn in range(150):
        given = {control.name: rng.choice(every_value(control)) for control in tensor_parallel.CONTROLS}
        width = (WIDE, NARROW)[turn % 2]
        try:
            shown = drawn(width, **given)
        except ValueError as refused:
            assert str(refused).split()[0] in NAMES
            continue
        root = ElementTree.fromstring(shown["svg"])
        _, _, wide, high = map(float, root.get("viewBox").split())
        assert wide == width and len(shown["svg"]) < 60_000 and len(shown["text"].split()) <= 80
        for mark in root.iter():
            if mark.get("x") and mark.get("y"):
                right = float(mark.get("x")) + float((mark.get("width") or "0").strip("%"))
                assert 0 <= right <= wide and 0 <= float(mark.get("y")) <= high, (given, mark.attrib)
