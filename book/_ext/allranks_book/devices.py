"""Where does a reader look up what the book says of hardware? On a page made from `allranks.hardware`.

A page says `<!-- hardware: accelerators -->`, `links` or `sources` where it wants them.
"""

from __future__ import annotations

import re

from allranks import hardware
from allranks.explorers.frame.words import scaled, seconds

PLACE = re.compile(r"<!-- hardware: (accelerators|links|sources) -->")
NARROW = ("fp8", "fp4")


def fill_in(app, docname: str, source: list[str]) -> None:
    """Put the tables where a page asks for them."""
    if PLACE.search(source[0]):
        parts = {"accelerators": accelerators(), "links": links(), "sources": sources()}
        source[0] = PLACE.sub(lambda place: parts[place[1]], source[0])
        app.env.note_dependency(hardware.__file__)


def accelerators() -> str:
    """A row for each accelerator, as Markdown, with its peaks in TFLOP/s."""
    rows = []
    for name, each in hardware.ACCELERATORS.items():
        half = each.peak.get("bf16") or each.peak["fp16"]
        peaks = [f"{rate / 1e12:,.0f}" if rate else "" for rate in (half, *map(each.peak.get, NARROW))]
        memory = scaled(each.memory, "B"), scaled(each.bandwidth, "B/s")
        rows.append([f"`{name}`", *memory, *peaks, f"{half / each.bandwidth:.0f}"])
    return table("accelerator", "memory", "bandwidth", "16 bits", *NARROW, "ridge", rows=rows)


def links() -> str:
    """A row for each link, as Markdown."""
    rows = [
        [f"`{name}`", scaled(one.bandwidth, "B/s"), seconds(one.α)] for name, one in hardware.LINKS.items()
    ]
    return table("link", "bandwidth", "α", rows=rows)


def sources() -> str:
    """Where the numbers of each record come from, as a list in Markdown."""
    records = [*hardware.ACCELERATORS.values(), *hardware.LINKS.values()]
    return "\n".join(f"- `{each.name}`: {source(each)}" for each in records)


def source(record) -> str:
    """Where a record comes from and of which year, without what all links share."""
    said = record.source.partition(f"; {hardware.NCCL}")[0]
    return said if record.date in said else f"{said}, {record.date}"


def table(*head: str, rows: list[list[str]]) -> str:
    """A table in Markdown whose numbers stand on the right."""
    sides = [":--", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, sides, *rows))


def setup(app) -> None:
    """Fill in the page as it is read."""
    app.connect("source-read", fill_in)
