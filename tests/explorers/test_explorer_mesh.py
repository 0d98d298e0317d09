"""The explorer of the device mesh shows and says what `allranks.topology` computes."""

import random
import xml.etree.ElementTree as ElementTree

import pytest

from allranks import topology, transformer
from allranks.explorers import mesh
from allranks.explorers.frame.controls import Steps, settings
from allranks.explorers.frame.svg import NARROW, WIDE
from allranks.explorers.frame.words import scaled, seconds
from allranks.hardware import link

NAMES = [control.name for control in mesh.CONTROLS]


def drawn(width=WIDE, **given):
    return mesh.draw(width, **settings(mesh.CONTROLS, given))


@pytest.mark.parametrize("order", [order for order, _ in mesh.ORDERS])
@pytest.mark.parametrize("model", ["llama3-70b", "gpt3-175b"])
def test_every_axis_is_said_as_placed(order, model):
    sizes = {"tp": 4, "cp": 2, "pp": 2, "dp": 4}
    shape = tuple((axis, sizes[axis]) for axis in order.split())
    inside, between = link("nvlink-4"), link("infiniband-ndr")
    levels = (
        topology.Level("node", 8, inside.α, inside.bandwidth, 1),
        topology.Level("network", 64, between.α, between.bandwidth, 1),
    )
    text = drawn(order=order, model=model)["text"]
    for axis in topology.place(shape, levels, transformer.PRESETS[model], 8):
        name = "cp·dp" if axis.axis == "dp" else axis.axis
        across, groups = axis.groups[1][1], sum(count for _, count in axis.groups)
        said = f"all of {groups}" if across == groups else f"{across or 'none'} of {groups}"
        assert f"{name} {scaled(axis.sent, 'B')}, {seconds(axis.seconds)}, {said}" in text


def test_the_groups_are_those_of_llama_3s_figure():
    """Grattafiori et al. 2024, figure 5: 16 GPUs, [TP, CP, PP, DP] of 2 each."""
    groups = {"tp": "4, 5", "cp": "5, 7", "pp": "1, 5", "dp": "5, 7, 13, 15"}
    for axis, members in groups.items():
        text = drawn(axis=axis, tp=2, cp=2, pp=2, dp=2, rank=5)["text"]
        assert f"from 0): {members}. Sent" in text
    assert "Rank 5: tp 1, cp 0, pp 1, dp 0" in text


def test_tensor_parallelism_leaves_the_node_when_its_axis_is_slow():
    near = drawn(order="tp cp pp dp", tp=8, cp=1, pp=2, dp=4)["text"]
    far = drawn(order="dp pp cp tp", tp=8, cp=1, pp=2, dp=4)["text"]
    assert "tp 301 GB, 729 ms, none of 8" in near
    assert "tp 301 GB, 6.26 s, all of 8" in far


def test_experts_are_a_part_of_dp_and_only_a_mixture_has_them():
    text = drawn(model="mixtral-8x7b", axis="ep", tp=2, cp=1, pp=1, dp=8, ep=4, rank=0)["text"]
    assert "ep group 0 (of 4, from 0): 0, 2, 4, 6." in text and "expert dp" in text
    assert (
        "Rank 9: tp 1, cp 0, pp 0, dp 4, ep 0"
        in drawn(model="mixtral-8x7b", tp=2, cp=1, pp=1, dp=8, ep=4, rank=9)["text"]
    )
    assert drawn()["idle"] == ["ep"] and "expert dp" not in drawn()["text"]
    assert drawn(model="mixtral-8x7b")["idle"] == []
    with pytest.raises(ValueError, match="ep must divide dp = 4, not be 8"):
        drawn(model="mixtral-8x7b", ep=8)


def test_more_ranks_than_can_be_shown_are_refused():
    with pytest.raises(
        ValueError, match="dp = 16 makes 256 ranks in all; at most 128 are drawn: make an axis smaller"
    ):
        drawn(tp=8, cp=1, pp=2, dp=16)


def test_a_rank_beyond_the_last_is_the_last():
    shown = drawn(tp=2, cp=1, pp=1, dp=1, rank=9)
    assert shown["steps"] == 2 and "Rank 1:" in shown["text"]


def test_every_setting_is_drawn_within_its_frame_or_refused_by_name():
    rng = random.Random(7)
    drawn_at_all = 0
    for turn in range(150):
        given = {
            control.name: rng.randint(0, 140)
            if isinstance(control, Steps)
            else rng.choice(control.options)[0]
            for control in mesh.CONTROLS
        }
        width = (WIDE, NARROW)[turn % 2]
        try:
            shown = drawn(width, **given)
        except ValueError as refused:
            assert str(refused).split()[0] in NAMES
            continue
        drawn_at_all += 1
        root = ElementTree.fromstring(shown["svg"])
        _, _, wide, high = map(float, root.get("viewBox").split())
        assert wide == width and len(shown["svg"]) < 60_000
        for mark in root.iter():
            if mark.get("x") and mark.get("y"):
                right = float(mark.get("x")) + float((mark.get("width") or "0").strip("%"))
                assert 0 <= right <= wide and 0 <= float(mark.get("y")) <= high, (given, mark.attrib)
    assert drawn_at_all > 60
