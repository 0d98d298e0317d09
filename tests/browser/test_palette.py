"""The colours of ranks and operations can be told apart by everyone, and read as text."""

from __future__ import annotations

import math
import re
from itertools import combinations

import pytest
from built_book import ROOT

PAPER = {"light": "#ffffff", "dark": "#14181d"}
RANKS = [f"rank-{rank}" for rank in range(8)]
OPERATIONS = ["forward", "backward-input", "backward-weight", "comm", "idle"]
# What is seen without the red or the green receptor (Viénot, Brettel and Mollon 1999), in linear RGB.
SIGHT = {
    "three receptors": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "no green": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


def palette(theme: str) -> dict[str, str]:
    """Name and value of each colour of a theme."""
    css = (ROOT / "book" / "_static" / "palette.css").read_text()
    block = css.split(f'[data-theme="{theme}"]')[1].split("}")[0]
    return dict(re.findall(r"--ar-([\w-]+): (#\w{6})", block))


def linear(colour: str) -> list[float]:
    """Linear red, green and blue of a hexadecimal sRGB colour."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio of two colours."""
    weigh = (0.2126, 0.7152, 0.0722)
    dark, light = sorted(sum(map(math.prod, zip(weigh, linear(c), strict=True))) for c in (one, other))
    return (light + 0.05) / (dark + 0.05)


def seen(colour: str, sight: str) -> tuple[float, float, float]:
    """CIE L*a*b* of a colour as that sight sees it."""
    r, g, b = (max(0.0, sum(map(math.prod, zip(row, linear(colour), strict=True)))) for row in SIGHT[sight])
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", PAPER)
def test_colours_can_be_read_as_text(theme):
    colours = palette(theme)
    faint = [name for name in RANKS + OPERATIONS[:-1] if contrast(colours[name], PAPER[theme]) < 4.5]
    assert faint == []


@pytest.mark.parametrize("names", [RANKS, OPERATIONS], ids=["ranks", "operations"])
@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", PAPER)
def test_colours_stay_apart(theme, sight, names):
    colours = palette(theme)
    near = [
        pair
        for pair in combinations(names, 2)
        if math.dist(*(seen(colours[name], sight) for name in pair)) < 20
    ]
    assert near == []
