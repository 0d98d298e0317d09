"""Marks that answer lie within the picture, say what they are, and set what the explorer allows."""

import functools
import random
import xml.etree.ElementTree as ElementTree

import pytest
from allranks_book.setting import values

from allranks import explorers
from allranks.explorers.frame import controls
from allranks.explorers.frame.svg import NARROW, WIDE


@functools.cache
def drawn(name, settings, width):
    """What an explorer shows; settings: pairs, so that no test draws again what another has drawn."""
    return explorers.draw(name, dict(settings), width)


def draw(name, given, width=WIDE):
    return drawn(name, tuple(sorted(given.items())), width)


@functools.cache
def states(name):
    """The first setting, and twelve at random that are drawn."""
    rng, found = random.Random(name), [{}]
    while len(found) < 13:
        given = {}
        for control in explorers.explorer(name).CONTROLS:
            if isinstance(control, controls.Toggle):
                given[control.name] = rng.choice([True, False])
            elif isinstance(control, controls.Integer | controls.Steps):
                low, high = (control.low, control.high) if isinstance(control, controls.Integer) else (0, 9)
                given[control.name] = rng.randint(low, high)
            else:
                given[control.name] = rng.choice(control.options)[0]
        try:
            draw(name, given)
        except ValueError:
            continue
        found.append(given)
    return found


def marks(name, given, width):
    """The marks at a setting, and the size of the picture that they lie on."""
    shown = draw(name, given, width)
    over, picture = ElementTree.fromstring(shown["marks"]), ElementTree.fromstring(shown["svg"])
    assert over.get("viewBox") == picture.get("viewBox")
    return list(over), [float(each) for each in picture.get("viewBox").split()[2:]]


MANY = {
    "mesh": 136,
    "compression": 136,
}  # a mark for each rank, for each cell of the table; others have fewer


@pytest.mark.parametrize("name", explorers.NAMES)
def test_marks_lie_within_the_picture_and_are_few(name):
    for given in states(name):
        for width in (WIDE, NARROW):
            made, (wide, high) = marks(name, given, width)
            assert 1 <= len(made) <= MANY.get(name, 64)
            for mark in made:
                x, y, across, down = (float(mark.get(each)) for each in ("x", "y", "width", "height"))
                assert across > 0 and down > 0, mark.attrib
                assert x >= -1 and y >= 0 and x + across <= wide + 1 and y + down <= high, (
                    given,
                    mark.attrib,
                )


@pytest.mark.parametrize("name", explorers.NAMES)
def test_a_mark_says_what_it_is_and_sets_what_the_explorer_allows(name):
    changed = 0
    for given in states(name):
        made, _ = marks(name, given, WIDE)
        first = draw(name, given)
        tried = {mark.get("data-set") for mark in made if mark.get("data-set")}
        for listed in sorted(tried)[:6]:
            shown = draw(name, {**given, **values(name, listed)})
            changed += shown["svg"] != first["svg"]
        for mark in made:
            assert mark.get("role") == ("button" if mark.get("data-set") else "img")
            assert 6 < len(mark.get("aria-label")) <= 120, mark.attrib
    assert changed > 12


def test_a_mark_says_the_numbers_of_the_arithmetic():
    from allranks.attention import ring_pairs

    made, _ = marks("context_parallel", {}, WIDE)
    words = [mark.get("aria-label") for mark in made]
    for hop, pairs in enumerate(ring_pairs(2**17, 4, "contiguous", True)):
        assert f"hop {hop}: {sum(each > 0 for each in pairs)} of 4 ranks compute" in words
    made, _ = marks("experts", {}, WIDE)
    taken = [mark.get("aria-label") for mark in made if mark.get("aria-label").startswith("expert ")]
    assert len(taken) == 8 and taken[0] == "expert 0 on rank 0: 40 tokens, room for 40"
