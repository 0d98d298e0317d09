"""At any setting a picture inside its frame, light, with words, or a refusal that names a control."""

import random
import xml.etree.ElementTree as ElementTree

import pytest

from allranks import explorers
from allranks.explorers.frame import controls
from allranks.explorers.frame.svg import NARROW, WIDE

TAG = "{http://www.w3.org/2000/svg}"
HEAVIEST = 150_000  # bytes of an SVG
STEPS = 60  # of a slider whose end depends on the other controls


def values(control):
    """What a control can be set to."""
    if isinstance(control, controls.Toggle):
        return [False, True]
    if isinstance(control, controls.Steps):
        return list(range(STEPS))
    if isinstance(control, controls.Integer):
        return list(range(control.low, control.high + 1))
    return [value for value, _ in control.options]


def many_settings(made):
    """Each control at each end, the others as they begin; and settings drawn at random."""
    for control in made:
        yield {control.name: values(control)[0]}
        yield {control.name: values(control)[-1]}
    rng = random.Random(1)
    for _ in range(24):
        yield {control.name: rng.choice(values(control)) for control in made}


def outside(svg, width):
    """The marks that do not lie within the picture, by their words or attributes."""
    root = ElementTree.fromstring(svg)
    high = float(root.get("height"))
    assert float(root.get("width")) == width
    for mark in root.iter(f"{TAG}text"):
        x, y, words = float(mark.get("x")), float(mark.get("y")), mark.text or ""
        long = 5.7 * len(words) * float(mark.get("font-size", 13)) / 12
        left = x - {"end": 1, "middle": 0.5, None: 0}[mark.get("text-anchor")] * long
        if not (left >= -4 and left + long <= width + 4 and 0 <= y <= high):
            yield words
    for mark in list(root.iter(f"{TAG}rect"))[1:]:  # after the background
        if mark.get("x") is None:
            continue
        x, y, wide, tall = (float(mark.get(name)) for name in ("x", "y", "width", "height"))
        if not (
            x >= -3 and x + wide <= width + 1 and y >= 0 and y + tall <= high and wide >= 0 and tall >= 0
        ):
            yield mark.attrib


@pytest.mark.parametrize("name", explorers.NAMES)
def test_every_setting_is_drawn_within_the_picture_or_refused_by_name(name):
    explorer = explorers.explorer(name)
    drawn = 0
    for given in many_settings(explorer.CONTROLS):
        for width in (WIDE, NARROW):
            try:
                shown = explorers.draw(name, given, width=width)
            except ValueError as refusal:
                named = [control.name for control in explorer.CONTROLS if control.name in str(refusal)]
                assert named, (given, refusal)
                continue
            drawn += 1
            assert list(outside(shown["svg"], width)) == [], given
            assert len(shown["svg"].encode()) < HEAVIEST, given
            assert shown["text"].endswith("."), given
            assert "nan" not in shown["text"], given
    assert drawn > 30
