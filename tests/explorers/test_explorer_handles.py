"""A grip stands where its control is, within the picture, and follows to where a hand drags it."""

import xml.etree.ElementTree as ElementTree

import pytest
from allranks_book.setting import values
from test_explorer_marks import draw, states

from allranks import explorers
from allranks.explorers.frame.handles import spread
from allranks.explorers.frame.svg import NARROW, WIDE

HELD = [name for name in explorers.NAMES if explorers.draw(name).get("handles")]
FOLLOWS = {  # explorers whose picture does not change its scale where the grip is dragged
    "all_reduce": ("step", "nbytes"),
    "averaging": ("extra", "step"),
    "buckets": ("bucket", "moment"),
    "context_parallel": ("context_parallel", "step"),
    "mesh": ("tp",),
    "pipeline": ("microbatches", "moment"),
    "precision": ("x", "middle"),
    "waiting": ("late", "moment"),
    "zero": ("phase",),
}


def handles(name, given, width=WIDE):
    """Each grip of a picture by its control: (its place on its axis, its stops, its element); the size."""
    shown = draw(name, given, width)
    if not shown["handles"]:
        return {}, (0, 0)
    over, found = ElementTree.fromstring(shown["handles"]), {}
    assert over.get("viewBox") == ElementTree.fromstring(shown["svg"]).get("viewBox")
    for one in over.iter("g"):
        if one.get("role") == "slider":
            at = [float(each.strip("px")) for each in one.get("style").split("(")[1].strip(")").split(",")]
            stops = [part.split("=") for part in one.get("data-stops").split(" ")]
            found[one.get("data-id")] = (at, stops, one)
    return found, [float(each) for each in over.get("viewBox").split()[2:]]


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_grip_is_in_the_picture_and_says_where_it_is(name, width):
    for given in states(name):
        made, (wide, high) = handles(name, given, width)
        for (x, y), stops, one in made.values():
            assert 0 <= x <= wide and 0 <= y <= high, given
            now = int(one.get("aria-valuenow"))
            assert 0 <= now <= int(one.get("aria-valuemax")) == len(stops) - 1
            along = x if one.get("data-axis") == "x" else y
            assert along == pytest.approx(float(stops[now][1]), abs=0.11)
            places = [float(place) for _, place in stops]
            assert places == sorted(places, reverse=one.get("data-axis") == "y")
            assert len(one.get("aria-label")) > 3 and one.get("aria-valuetext")


@pytest.mark.parametrize("name", HELD)
def test_every_stop_is_a_value_that_the_control_knows(name):
    for given in states(name)[:4]:
        for control, (_, stops, _) in handles(name, given)[0].items():
            for value in {stops[0][0], stops[len(stops) // 2][0], stops[-1][0]}:
                known = values(name, f"{control}={value}")
                try:
                    draw(name, {**given, **known})
                except ValueError as refusal:  # of a combination, in words of the subject
                    assert "must be one of" not in str(refusal)


@pytest.mark.parametrize("name", FOLLOWS)
def test_a_grip_that_is_dragged_to_a_stop_stands_there(name):
    made, _ = handles(name, {})
    for control in FOLLOWS[name]:
        for value, place in made[control][1]:
            (x, _), _, _ = handles(name, values(name, f"{control}={value}"))[0][control]
            assert x == pytest.approx(float(place), abs=1.5), (control, value)


def test_what_a_picture_has_no_room_for_stands_at_its_edge():
    assert spread([("a", 10), ("b", 50), ("c", 99), ("d", 200)], 60, 5) == [
        ("a", 10),
        ("b", 50),
        ("c", 60),
        ("d", 65),
    ]


def test_a_message_leaves_from_where_it_was_and_arrives_where_it_goes():
    before, after = (explorers.draw("all_reduce", {"step": step})["handles"] for step in (3, 4))

    def things(text):
        return {
            one.get("data-id"): one.get("style")
            for one in ElementTree.fromstring(text).iter("g")
            if one.get("class") == "ar-moving"
        }

    shared = set(things(before)) & set(things(after))
    assert len(shared) == 8, "each of the eight messages of the round"
    assert all(things(before)[key] != things(after)[key] for key in shared)
