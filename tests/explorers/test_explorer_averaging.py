"""The explorer of averaged gradients shows the steps that `allranks.averaging` takes."""

import xml.etree.ElementTree as ElementTree

import pytest

from allranks.averaging import POINTS, apart, descend, split
from allranks.explorers import averaging as explorer
from allranks.explorers.frame.controls import settings
from allranks.explorers.frame.svg import NARROW, WIDE
from allranks.explorers.frame.words import figures


def drawn(width=WIDE, **given):
    return explorer.draw(width, **settings(explorer.CONTROLS, given))


def distances(way, ranks, extra, rate=0.2):
    one = descend(POINTS, [16], "mean", rate, 12, explorer.START)
    return apart(descend(POINTS, split(16, ranks, extra), way, rate, 12, explorer.START), one)


@pytest.mark.parametrize("way", ["mean", "weighted", "sum", "none"])
@pytest.mark.parametrize("ranks, extra", [(2, 0), (4, 0), (4, 6), (8, 5)])
def test_the_result_is_the_distance_from_one_process(way, ranks, extra):
    for step in (0, 3, 12):
        distance = distances(way, ranks, extra)[step]
        said = figures(distance) if distance > 1e-9 else "0"
        assert drawn(way=way, ranks=ranks, extra=extra, step=step)["result"][0] == said


def test_ranks_that_average_equal_parts_or_weigh_them_are_at_no_distance():
    for ranks in (2, 4, 8):
        assert drawn(ranks=ranks, step=12)["result"][0] == "0"
        for extra in range(explorer.most(ranks) + 1):
            assert drawn(way="weighted", ranks=ranks, extra=extra, step=12)["result"][0] == "0"
        assert drawn(ranks=ranks, extra=1, step=12)["result"][0] != "0"


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_rank_0_takes_no_last_point_of_another(ranks):
    assert min(split(16, ranks, explorer.most(ranks))) >= 1
    if explorer.most(ranks) < explorer.MOST:
        with pytest.raises(ValueError, match="extra must leave"):
            split(16, ranks, explorer.most(ranks) + 1)


def test_weights_that_have_left_the_plane_are_said_to():
    assert "have left this plane" in drawn(way="sum", ranks=8, step=1)["svg"]
    assert "have left this plane" not in drawn(way="sum", ranks=2, step=12)["svg"]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_setting_changes_the_height_of_the_picture(width):
    changes = ({}, {"way": "none"}, {"ranks": 8, "extra": 7}, {"lower": 6, "step": 12})
    heights = {ElementTree.fromstring(drawn(width, **changed)["svg"]).get("height") for changed in changes}
    assert len(heights) == 1


def test_the_lowered_point_moves_the_gradient_of_one_rank_alone():
    def said(lower):
        over = ElementTree.fromstring(drawn(step=0, lower=lower)["marks"])
        return [mark.get("aria-label") for mark in over if "gradient" in mark.get("aria-label")]

    same = [before == after for before, after in zip(said(0), said(4), strict=True)]
    assert same == [True, True, True, False]


def test_an_arrow_and_the_points_that_it_comes_from_light_together():
    over = ElementTree.fromstring(drawn(step=0)["marks"])
    lights = [mark.get("data-light") for mark in over if mark.get("data-light")]
    assert sorted(lights) == sorted(2 * [f"r{rank}" for rank in range(4)])
