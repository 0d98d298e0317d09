"""The picture of the formats says what the arithmetic says, at every setting."""

import re

import pytest

from allranks import precision
from allranks.explorers import WIDE
from allranks.explorers import precision as explorer
from allranks.explorers.frame import controls
from allranks.explorers.frame.words import percent

FORMATS = [form.name for form in precision.FORMATS]


def draw(width=WIDE, **given):
    """What the explorer shows."""
    return explorer.draw(width, **controls.settings(explorer.CONTROLS, given))


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_words_are_the_arithmetic(dtype):
    words = draw(dtype=dtype, middle=-18, spread=4, scale=10)["text"]
    lost = precision.lost(dtype, -18, 4)
    assert f"has {precision.bits(dtype)} bits" in words
    if lost.zero > 0.001:
        assert f"{percent(lost.zero)} round to 0" in words
    if 0.999 > lost.subnormal > 0.001:
        assert f"{percent(lost.subnormal)} keep fewer bits" in words


def test_half_precision_is_said_as_published():
    words = draw()["text"]
    for fact in (
        "largest 65,504",
        "smallest 5.96 × 10⁻⁸",
        "adding less than 0.000488 changes nothing",
        "4.0 % round to 0",
    ):
        assert fact in words  # 2^-24, 2^-11 (Micikevicius et al. 2018), Φ(−7/4)
    assert len(words.split()) <= 75


def test_what_is_too_large_is_said():
    assert "becomes infinity" in draw(x=100000)["text"]
    assert "becomes the largest number" in draw(dtype="fp8_e4m3", x=1000)["text"]
    assert "12.7 %" in draw(dtype="fp8_e4m3", scale=20, spread=6)["text"]


@pytest.mark.parametrize(
    "x, said",
    [
        (2.0**-24, "5.96 × 10⁻⁸"),
        (65504, "65,504"),
        (1e-9, "10⁻⁹"),
        (9.999e-7, "10⁻⁶"),
        (-3e8, "−3 × 10⁸"),
        (0, "0"),
        (0.25, "0.25"),
    ],
)
def test_numbers_of_all_sizes_are_said(x, said):
    assert explorer.said(x, 5 if x == 65504 else 3) == said


def test_the_chosen_format_is_marked():
    bold = re.findall(r'font-weight="600"[^>]*>([^<]+)<', draw(dtype="bf16")["svg"])
    assert "bf16" in bold and "fp16" not in bold


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_numbers_below_the_largest_are_the_numbers_of_the_format(dtype):
    here = precision.largest(dtype)
    for _ in range(8):
        below = explorer.number_below(dtype, here)
        assert precision.rounded(dtype, below) == below
        assert precision.rounded(dtype, (below + here) / 2) in (below, here), "none lies between"
        assert precision.rounded(dtype, below + 0.51 * (here - below)) == here
        here = below
