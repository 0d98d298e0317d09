"""The picture of compression says what the arithmetic says: seconds, bytes, and where fewer bytes pay."""

import re

import pytest

from allranks import compression
from allranks.explorers import WIDE
from allranks.explorers import compression as explorer
from allranks.explorers.frame import controls
from allranks.explorers.frame.words import scaled, seconds

SETTINGS = [
    {},
    {"method": "one_bit", "model": "huge", "ranks": 1024, "link": 100, "bits": 32},
    {"method": "power_sgd", "model": "small", "rank": 64, "ranks": 2, "link": 10**6, "latency": 10_000},
    {"method": "top_k", "ranks": 1024, "density": 1000, "rate": 1000, "latency": 1},
]
ALL = pytest.mark.parametrize("given", SETTINGS, ids=str)


def draw(width=WIDE, **given):
    """What the explorer shows."""
    return explorer.draw(width, **controls.settings(explorer.CONTROLS, given))


def arithmetic(given):
    """The settings, and the arguments of `compression.seconds` after the method, with its options."""
    set_to = controls.settings(explorer.CONTROLS, given)
    layers, h = explorer.MODELS[set_to["model"]]
    shapes = [(3 * h, h), (h, h), (4 * h, h), (h, 4 * h)] * layers
    options = {
        "density": set_to["density"] / 10_000,
        "factors": compression.power_sgd_elements(shapes, set_to["rank"]),
        "value_bytes": set_to["bits"] // 8,
    }
    bandwidth = set_to["link"] * 1e6 / 8
    arguments = 12 * h * h * layers, set_to["ranks"], set_to["latency"] / 1e6, bandwidth, set_to["rate"] * 1e9
    return set_to, arguments, options


@ALL
def test_the_words_are_the_arithmetic(given):
    words = draw(**given)["text"]
    set_to, arguments, options = arithmetic(given)
    taken = [sum(compression.seconds(each, *arguments, **options)) for each in compression.METHODS]
    assert f"the dense all-reduce takes {seconds(taken[0])}," in words
    assert all(f" {seconds(each)}" in words for each in taken)
    best = compression.METHODS[taken.index(min(taken))]
    assert f"The fastest is {explorer.NAMED[best]}." in words
    elements, ranks = arguments[:2]
    sent = compression.cost(set_to["method"], elements, ranks, **options).nbytes
    assert f"· {scaled(sent, 'B')}<" in draw(**given)["svg"]


@ALL
def test_the_table_says_how_many_times_faster(given):
    set_to, arguments, options = arithmetic(given)
    elements, _, latency, _, rate = arguments
    expected = []
    for ranks, _ in explorer.RANKS:
        for link, _ in explorer.LINKS:
            dense, other = (
                sum(compression.seconds(each, elements, ranks, latency, link * 1e6 / 8, rate, **options))
                for each in ("dense", set_to["method"])
            )
            expected.append((explorer.times(dense / other), dense > other))
    table = draw(**given)["svg"].partition("times faster than dense")[2]
    cells = re.findall(r'text-anchor="middle"( font-weight="600")? style="[^"]*">([\d.,k]+)<', table)
    shown = [(words, bool(bold)) for bold, words in cells]
    assert shown[: len(expected)] == expected


def test_it_pays_below_the_link_that_the_words_name():
    named = float(re.search(r"links below ([\d.]+) Gbit/s", draw()["text"])[1])
    for link, faster in ((100_000, True), (200_000, False)):
        assert (link / 1000 < named) == faster
        _, arguments, options = arithmetic({"link": link})
        dense, top_k = (sum(compression.seconds(each, *arguments, **options)) for each in ("dense", "top_k"))
        assert (top_k < dense) == faster


def test_lists_that_grow_with_the_ranks_end_by_saving_nothing():
    assert "saves time on no link" in draw(ranks=1024, density=1000)["text"]
    assert "saves time on links below" in draw(method="one_bit", ranks=1024)["text"]
