"""The explorer of ZeRO: its words are the numbers of the arithmetic, its picture stays in its frame."""

import xml.etree.ElementTree as ElementTree

import pytest

from allranks import hardware, memory
from allranks.explorers import zero
from allranks.explorers.frame import controls
from allranks.explorers.frame.words import scaled
from allranks.memory.phases import zero_phases

BILLION = 10**9


def draw(width=720, **given):
    return zero.draw(width, **controls.settings(zero.CONTROLS, given))


def drawn_inside(svg):
    root = ElementTree.fromstring(svg)
    _, _, wide, high = map(float, root.get("viewBox").split())
    for mark in root.iter():
        if mark.tag.endswith("}rect") and mark.get("x"):
            x, y, across, down = (float(mark.get(key)) for key in ("x", "y", "width", "height"))
            assert min(x, y) >= 0 and x + across <= wide + 0.2 and y + down <= high, mark.attrib
        if mark.tag.endswith("}text"):
            x, y = float(mark.get("x")), float(mark.get("y"))
            assert 0 <= x <= wide and y > 0 and y <= high, mark.text
            assert float(mark.get("font-size") or 13) >= 11
    return root


@pytest.mark.parametrize("width", [720, 360])
@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("ranks", [1, 2, 8, 16, 1024])
def test_every_phase_is_drawn_inside_its_frame(width, stage, ranks):
    for offload in ("device device", "nvme device") + (("cpu cpu",) if stage == 3 else ()):
        steps = draw(width, stage=stage, ranks=ranks, offload=offload)["steps"]
        heights = set()
        for phase in range(steps + 1):
            shown = draw(width, stage=stage, ranks=ranks, offload=offload, phase=phase, parameters=10**12)
            heights.add(drawn_inside(shown["svg"]).get("viewBox"))
            assert len(shown["svg"]) < 60_000
        assert len(heights) == 1  # nothing jumps


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("dtypes", [name for name, _ in zero.DTYPES])
def test_the_words_say_what_the_arithmetic_says(stage, dtypes):
    size = 75 * 10**8
    phases = zero_phases(size, 64, stage, dtypes, units=32)
    for number, phase in enumerate(phases):
        said = draw(stage=stage, ranks=64, dtypes=dtypes, phase=number)["text"]
        sent = memory.zero_sent_bytes(size, 64, stage, dtypes)
        assert f"each holds {scaled(phase.device, 'B')} on its device" in said
        assert (
            f"sends {scaled(phase.sent, 'B') if phase.sent else 0}, in the whole step {scaled(sent, 'B')}."
            in said
        )
        assert f"At the peak it holds {scaled(max(each.device for each in phases), 'B')}" in said
        assert len(said.split()) <= 70


def test_the_paper_s_figure_1_is_a_setting():
    # 7.5 billion parameters on 64 ranks: 120, 31.4, 16.6 and 1.9 GB.
    for stage, printed in ((0, "120 GB"), (1, "31.4 GB")):
        assert f"At the peak it holds {printed}" in draw(stage=stage, ranks=64)["text"]
    update = draw(stage=2, ranks=64, phase=4)["text"]
    assert "In the phase “update”, each holds 16.6 GB" in update
    assert "In the phase “update”, each holds 1.88 GB" in draw(stage=3, ranks=64, phase=6)["text"]


def test_stage_3_sends_half_as_much_again():
    sent = [memory.zero_sent_bytes(10**9, 8, stage) for stage in range(4)]
    assert sent[3] == 1.5 * sent[0] == 1.5 * sent[2]
    assert f"in the whole step {scaled(sent[3], 'B')}" in draw(ranks=8, parameters=10**9)["text"]


def test_the_smallest_device_holds_it_and_no_smaller_one_does():
    for nbytes in (0, 1, 32e9, 32e9 + 1, 79e9, 80e9, 141e9, 180e9, 192e9, 288e9):
        size, name, fits = zero.smallest(nbytes)
        sizes = [each.memory for each in hardware.ACCELERATORS.values()]
        assert fits and size == min(each for each in sizes if each >= nbytes)
        assert name.endswith(scaled(size, "B"))
    assert zero.smallest(289e9) == (288e9, "MI355X, 288 GB", False)
    assert "fits no device, not even an MI355X, 288 GB" in draw(stage=0, parameters=10**12)["text"]


def test_only_stage_3_moves_weights_off_the_device_and_has_layers():
    with pytest.raises(ValueError, match=r"^offload must leave weights on the device in stage 2"):
        draw(stage=2, offload="cpu cpu")
    assert draw(stage=3)["idle"] == [] and draw(stage=2)["idle"] == ["layers"]


def test_what_is_outside_the_device_is_said_with_what_moves():
    said = draw(ranks=4, offload="nvme nvme", phase=0)["text"]
    traffic = memory.offload_traffic(75 * 10**8, 4, "nvme", "nvme")
    assert "each holds 0 on its device (nothing)" in said
    assert f"link {scaled(traffic.link, 'B')}, disk {scaled(traffic.disk, 'B')}." in said


def test_each_rank_holds_the_slice_of_its_number():
    root = drawn_inside(draw(ranks=4, stage=3, phase=0)["svg"])
    blue = [
        each for each in root.iter() if "ar-forward" in each.get("style", "") and each.get("height") == "20"
    ]
    starts = [float(each.get("x")) for each in blue[:4]]
    assert [round(4 * (x - starts[0]) / (4 * (starts[1] - starts[0]))) for x in starts] == [0, 1, 2, 3]
