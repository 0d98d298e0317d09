"""The picture of local updates says what the simulation says, and where the printed table differs."""

import pytest

from allranks import local_updates
from allranks.explorers import WIDE
from allranks.explorers import local_updates as explorer
from allranks.explorers.frame import controls
from allranks.explorers.frame.words import figures, fixed, percent

SETTINGS = [
    {},
    {"model": 100e9, "every": 1, "size": 0, "link": 10**6},
    {"model": 10e9, "every": 10, "size": 1, "delay": 5, "bits": 32, "link": 100},
    {"every": 200, "size": 12, "bits": 8},
]
ALL = pytest.mark.parametrize("given", SETTINGS, ids=str)


def draw(width=WIDE, **given):
    """What the explorer shows."""
    return explorer.draw(width, **controls.settings(explorer.CONTROLS, given))


def options(way):
    """The settings that are a way of the published table."""
    full = {"every": 1, "delay": 0, "bits": 16, **way}
    return {**full, "size": way.get("size", 0)}


@ALL
def test_the_words_are_the_simulation(given):
    words = draw(**given)["text"]
    set_to = controls.settings(explorer.CONTROLS, given)
    way = {name: set_to[name] for name in ("every", "delay", "bits")} | {"size": set_to["size"] or None}
    layers, step = local_updates.MODELS[set_to["model"]]
    bits = set_to["model"] * way.pop("bits") / layers
    share = local_updates.utilization(bits, layers, step, set_to["link"] * 1e6, **way)
    assert f"compute for {percent(share)} of the time" in words
    assert len(words.split()) <= 75


@pytest.mark.parametrize("model", local_updates.MODELS)
@pytest.mark.parametrize("name", local_updates.WAYS)
def test_at_a_setting_of_the_table_what_does_not_fit_is_framed_and_said(model, name):
    way = local_updates.WAYS[name]
    shown = draw(model=model, **options(way))
    printed = local_updates.PRINTED[model, name]
    places = [local_updates.table_place(model, target, **way) for target in local_updates.TARGETS]
    off = [each for each, at in zip(printed, places) if at != local_updates.printed_place(each)]
    assert f"Table 4 has this setting: {5 - len(off)} of its 5 numbers" in shown["text"]
    assert ("one point of its grid" in shown["text"]) == bool(off)
    alarm = 'font-weight="600" style="fill:var(--ar-alarm'
    assert shown["svg"].count(alarm) == len(off)
    for number in printed:
        assert f">{fixed(number, 1)}<" in shown["svg"]
    for at in places:
        assert f">{figures(local_updates.GRID[at])}<" in shown["svg"]


def test_all_printed_numbers_of_a_model_are_dots():
    svg = draw()["svg"]
    for name in local_updates.WAYS:
        for gbits in local_updates.PRINTED[1e9, name]:
            assert f"<title>{name}: {figures(gbits)} Gbit/s for " in svg


def test_a_setting_that_the_table_does_not_have_is_said():
    shown = draw(every=50)
    assert shown["text"].endswith("Table 4 does not have this setting.")
    assert ">Table 4 does not have this setting.<" in shown["svg"]
