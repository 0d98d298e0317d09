"""The explorer of layouts says what `allranks.plan` says, and the best of the changes that it tries."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from allranks import hardware, memory, plan, transformer
from allranks.explorers import layout as explorer
from allranks.explorers.frame.controls import settings
from allranks.explorers.frame.svg import NARROW, WIDE
from allranks.explorers.frame.words import scaled, seconds
from allranks.topology import groups

SELENE = {
    "inside": hardware.LINKS["nvlink-3"],
    "between": hardware.LINKS["infiniband-hdr"],
}
A100 = hardware.ACCELERATORS["a100-80gb"]
GPT = transformer.PRESETS["megatron-146b"]


def given(**changed):
    return settings(explorer.CONTROLS, changed)


def drawn(width=WIDE, **changed):
    return explorer.draw(width, **given(**changed))


@pytest.mark.parametrize("tp, pp, said", [(8, 8, "24.1 s"), (2, 32, "31.9 s"), (32, 2, "51.9 s")])
def test_the_times_of_the_page_are_those_of_the_figure(tp, pp, said):
    layout = plan.layout(tp=tp, pp=pp, dp=24, microbatches=96, zero_stage=0, recomputation="full")
    priced = plan.price(GPT, layout, A100, **SELENE, **plan.IN_2021)
    shown = drawn(tensor=tp, pipeline=pp)
    assert shown["result"][0] == seconds(priced.seconds) == said
    assert f"holds {scaled(priced.memory.total, 'B')} (" in shown["text"]
    assert explorer.priced(given(tensor=tp, pipeline=pp)) == priced


def test_the_parts_add_up():
    for changed in ({}, {"pipeline": 1}, {"context": 2, "stage": 3, "software": "today"}):
        price = explorer.priced(given(**changed))
        held = sum(getattr(price.memory, part) for part in explorer.HELD)
        assert held == pytest.approx(price.memory.total)
        shown = [getattr(price.parts, part) for part in ("compute", *explorer.LIMITS)]
        assert sum(shown) == pytest.approx(price.seconds)


def test_a_change_that_is_offered_is_the_best_of_one_notch():
    now = explorer.priced(given())
    tried = explorer.moves(given())
    assert {name for name, _, _, _ in tried} == set(explorer.MOVED)
    best = explorer.better(now, tried)
    fastest = min((price.seconds for *_, price in tried if price.fits))
    assert best[0][3].seconds == fastest < now.seconds
    name, value, words, price = best[0]
    assert explorer.priced(given(**{name: value})) == price
    assert words in drawn()["insight"] and seconds(price.seconds) in drawn()["insight"]


def test_where_nothing_fits_the_change_that_needs_least_is_offered():
    changed = {"model": "megatron-1t", "devices": 64, "batch": 512, "pipeline": 1}
    now, tried = explorer.priced(given(**changed)), explorer.moves(given(**changed))
    assert not now.fits and not any(price.fits for *_, price in tried)
    least = min(price.memory.total for *_, price in tried)
    assert explorer.better(now, tried)[0][3].memory.total == least
    assert "No single change makes it fit" in drawn(**changed)["insight"]


@pytest.mark.parametrize("axis, size", [("tp", 4), ("cp", 2), ("dp", 6), ("pp", 8)])
def test_whom_device_0_talks_to_is_its_group(axis, size):
    mesh = (("tp", 4), ("cp", 2), ("dp", 6), ("pp", 8))
    mine = next(group for group in groups(mesh, axis) if 0 in group)
    assert len(mine) == size
    assert plan.beside(mesh, axis, 16) == [rank for rank in mine if rank < 16]
    rows = explorer.groups_of(given(), explorer.priced(given()))
    assert [(letter, count, sum(there)) for letter, _, count, there, _, _ in rows] == [
        ("t", 8, 8),
        ("c", 1, 1),
        ("d", 24, 2),
        ("p", 8, 1),
    ]
    with pytest.raises(ValueError, match="axis must be one of tp, cp, dp, pp, not 'ep'"):
        plan.beside(mesh, "ep", 16)


@pytest.mark.parametrize(
    "changed, sentence",
    [
        ({"devices": 8}, "devices must be a multiple of t · c · p = 64, not 8"),
        ({"batch": 2048}, "batch must be a multiple of the 24 replicas (d), not 2,048"),
        (
            {"microbatch": 8, "devices": 1024, "batch": 64},
            "microbatch must divide the 4 sequences of a replica, not be 8",
        ),
        (
            {"model": "llama3-8b", "pipeline": 64, "tensor": 1},
            "pipeline is refused: 32 layers cannot fill 64 stages of 1 pieces",
        ),
    ],
)
def test_what_is_no_layout_is_refused_by_the_control_to_change(changed, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        drawn(**changed)


def test_pieces_mean_nothing_without_a_pipeline():
    assert drawn(pipeline=1)["idle"] == ["chunks"] and drawn()["idle"] == []
    assert explorer.priced(given(pipeline=1, chunks=4)) == explorer.priced(given(pipeline=1))


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_setting_moves_nothing_else_in_the_picture(width):
    heights = {
        ElementTree.fromstring(drawn(width, **changed)["svg"]).get("height")
        for changed in ({}, {"pipeline": 1}, {"stage": 3, "software": "today"}, {"tensor": 32})
    }
    assert len(heights) == 1


def test_no_bytes_are_counted_that_memory_does_not_know():
    a = explorer.priced(given(software="today", stage=1, recomputation="selective"))
    assert a.memory == memory.training_bytes(
        GPT, microbatch=1, data_parallel=24, tensor_parallel=8, pipeline_parallel=8, zero_stage=1,
        recomputation="selective", microbatches=96, sequence_parallel=True,
    )  # fmt: skip
