"""Which pages make up the book, in which order, and under which part?"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]


class Part(NamedTuple):
    """A caption of the table of contents and its pages, as paths without a suffix below the site's root."""

    caption: str
    pages: list[str]


def parts(toc: Path = ROOT / "_toc.yml") -> list[Part]:
    """The parts in order; the first has no caption and holds the book's first page."""
    stored = yaml.safe_load(toc.read_text(encoding="utf-8"))
    return [
        Part("", [stored["root"]]),
        *(Part(part["caption"], list(_pages(part["chapters"]))) for part in stored["parts"]),
    ]


def _pages(entries):
    for entry in entries:
        yield entry["file"]
        yield from _pages(entry.get("sections", []))


def anchor(page: str, place: str = "") -> str:
    """The name of a page, or of a place on it, in the one document: `book.index`, `book.index:id1`."""
    name = page.replace("/", ".")
    return f"{name}:{place}" if place else name
