"""The frame of the explorers: what may be set, how numbers are said, what a notebook stores."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from allranks import explorers
from allranks.explorers.frame import controls, svg, words


@pytest.mark.parametrize(
    "said, expected",
    [
        (words.fixed(27.25), "27.3"),
        (words.fixed(-0.04), "0.0"),
        (words.fixed(-1.26), "-1.3"),
        (words.fixed(2.0, 3), "2.000"),
        (words.fixed(0.051, 2), "0.05"),
        (words.fixed(1234567, 0), "1,234,567"),
        (words.figures(1 / 3), "0.333"),
        (words.figures(2.5), "2.5"),
        (words.figures(33), "33"),
        (words.figures(100), "100"),
        (words.figures(1234.4), "1,234"),
        (words.figures(0), "0"),
        (words.figures(0.00126), "0.00126"),
        (words.percent(3 / 11), "27.3 %"),
        (words.scaled(31.4e9, "B"), "31.4 GB"),
        (words.scaled(999.7, "B"), "1 kB"),
        (words.scaled(12, "B"), "12 B"),
        (words.counted(7.5e9), "7.5 B"),
        (words.counted(1e12), "1 T"),
        (words.counted(12), "12"),
        (words.seconds(0.0025), "2.5 ms"),
        (words.seconds(0), "0 s"),
        (words.seconds(1e-9), "1 ns"),
        (words.seconds(90), "90 s"),
        (words.lasting(90), "90 s"),
        (words.lasting(800), "13.3 minutes"),
        (words.lasting(20_000), "5.56 hours"),
        (words.lasting(216_000), "2.5 days"),
    ],
)
def test_a_number_is_said_with_few_digits(said, expected):
    assert said == expected


def test_scales_list_what_they_offer():
    assert [value for value, _ in controls.powers_of_two(1, 8)] == [1, 2, 4, 8]
    assert [value for value, _ in controls.decades(1, 100)] == [1, 2, 5, 10, 20, 50, 100]


CONTROLS = (
    controls.Choice("kind", "kind", (("a", "first"), ("b", "second")), "a"),
    controls.Integer("ranks", "ranks", 1, 8, 4),
    controls.Scale("size", "size", controls.powers_of_two(1, 1024), 64),
    controls.Toggle("overlap", "overlap", False),
    controls.Steps("step", "step", 0),
)


def test_what_is_not_given_is_as_the_control_has_it():
    start = {"kind": "a", "ranks": 4, "size": 64, "overlap": False, "step": 0}
    assert controls.settings(CONTROLS, {}) == start
    assert controls.settings(CONTROLS, {"ranks": 8}) == {**start, "ranks": 8}


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"kind": "c"}, "kind must be one of first, second, not c"),
        ({"ranks": 9}, "ranks must be a whole number from 1 to 8, not 9"),
        ({"ranks": 2.5}, "ranks must be a whole number from 1 to 8, not 2.5"),
        ({"size": 3}, "size must be one of 1, 2, 4, …, 512, 1024, not 3"),
        ({"overlap": "yes"}, "overlap must be on or off, not yes"),
        ({"step": -1}, "step must be a whole number from 0 to 100000, not -1"),
        ({"colour": 1}, "colour is not a control here; the controls are kind, ranks, size, overlap, step"),
    ],
)
def test_a_setting_that_is_not_allowed_is_refused(given, sentence):
    with pytest.raises(ValueError) as refused:
        controls.settings(CONTROLS, given)
    assert str(refused.value) == sentence


def test_an_explorer_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(ValueError, match=r"explorer must be one of waiting, .*, not 'pipelin'"):
        explorers.draw("pipelin")


def test_a_picture_has_one_of_two_widths():
    with pytest.raises(ValueError, match="width must be 720 or 360, not 500"):
        explorers.draw(explorers.NAMES[0], width=500)


@pytest.mark.parametrize("name", explorers.NAMES)
@pytest.mark.parametrize("width", [svg.WIDE, svg.NARROW])
def test_every_picture_is_well_formed_has_words_and_lies_within_its_frame(name, width):
    shown = explorers.draw(name, width=width)
    assert shown["text"].endswith(".")
    root = ElementTree.fromstring(shown["svg"])
    _, _, wide, high = map(float, root.get("viewBox").split())
    assert wide == width
    for mark in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(mark.get("x")) <= wide and 0 <= float(mark.get("y")) <= high, mark.text


@pytest.mark.parametrize("name", explorers.NAMES)
def test_a_first_picture_is_light_enough_for_a_notebook(name):
    assert len(explorers.draw(name)["svg"].encode()) < 60_000


@pytest.mark.parametrize("name", explorers.NAMES)
def test_controls_have_short_labels_and_names_of_their_own(name):
    made = explorers.explorer(name).CONTROLS
    assert len({control.name for control in made}) == len(made)
    assert all(len(control.label) <= 24 for control in made)


def test_a_notebook_stores_picture_words_and_settings():
    data, metadata = explorers.show("pipeline", stages=2)._repr_mimebundle_()
    shown = explorers.draw("pipeline", {"stages": 2})
    assert data["image/svg+xml"] == shown["svg"] and data["text/plain"] == shown["text"]
    assert metadata["image/svg+xml"]["explorer"] == "pipeline"
    assert metadata["image/svg+xml"]["settings"]["stages"] == 2


def test_in_jupyter_a_moved_control_draws_anew_and_a_refused_one_keeps_the_picture():
    shown = explorers.show("pipeline", schedule="dualpipe", beside="", stages=4, microbatches=8)
    before = shown.shown["svg"]
    shown.widgets["stages"].value = 5  # the two directions need an even number
    assert "stages must be a multiple of" in shown._words.value
    assert shown.shown["svg"] == before
    shown.widgets["stages"].value = 4
    shown.widgets["microbatches"].value = 12
    assert shown.shown["svg"] != before and "12 micro-batches" in shown._words.value


@pytest.mark.parametrize(
    "name, given",
    [
        ("all_reduce", {"world_size": 2, "algorithm": "recursive_doubling"}),
        ("pipeline", {"microbatches": 1, "beside": ""}),
        ("experts", {"experts": 16, "top_k": 1, "factor": 0.5}),
        ("experts", {"tokens": 8, "top_k": 1, "factor": 0.5, "skew": 1.25, "ranks": 2}),
        ("goodput", {"rate": "1"}),
    ],
)
def test_one_thing_is_not_said_in_the_plural(name, given):
    shown = explorers.draw(name, given)
    said = re.sub(r"<[^>]*>", "\n", str(shown).replace("aria-label", ">"))
    things = "ranks rounds micro-batches tokens slots buckets failures units"
    assert not re.search(rf"(?<![\d.,])(?<!, )1 ({'|'.join(things.split())})\b", said)
