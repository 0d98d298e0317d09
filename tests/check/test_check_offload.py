"""The checks of the chapter on offload say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
from verdicts import verdict

from allranks.check import offload as checks


@pytest.mark.parametrize(
    "answer, said",
    [
        (130, "✓ 130 GB"),
        (52, "micro-batch: what"),
        (208, "only once a step"),
        (130e9, "right in bytes"),
        (26, "count what leaves"),
        (None, "None"),
        ("130", "✗"),
    ],
)
def test_link(capsys, answer, said):
    assert said in verdict(capsys, checks.link, answer)


def in_tiles(gradient, fetch, tiles):
    rows = gradient.shape[1] // tiles
    parts = range(0, gradient.shape[1], rows)
    return sum(gradient[:, first : first + rows] @ fetch(first, first + rows) for first in parts)


def the_last_tile(gradient, fetch, tiles):
    rows = gradient.shape[1] // tiles
    for first in range(0, gradient.shape[1], rows):
        found = gradient[:, first : first + rows] @ fetch(first, first + rows)
    return found


@pytest.mark.parametrize(
    "answer, said",
    [
        (in_tiles, "✓ Every tile adds"),
        (lambda gradient, fetch, tiles: gradient @ fetch(0, 12), "12 of 12 rows were on the device at once"),
        (the_last_tile, "every tile adds"),
        (
            lambda gradient, fetch, tiles: (
                in_tiles(gradient, fetch, tiles) + in_tiles(gradient, fetch, tiles)
            ),
            "once",
        ),
        (lambda gradient, fetch, tiles: (in_tiles(gradient, fetch, tiles), 0)[1], "(7, 5)"),
        (lambda gradient, fetch, tiles: torch.zeros(7, 5), "Nothing was fetched"),
        (lambda gradient, fetch, tiles: None, "✗"),
        (None, "✗"),
    ],
)
def test_backward_in_tiles(capsys, answer, said):
    assert said in verdict(capsys, checks.backward_in_tiles, answer)
