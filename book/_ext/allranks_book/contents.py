"""What is in the book, what does each page show, and which chapters does it need?

The order is `_toc.yml`'s, the sentence `book/map.yaml`'s; titles and needs are read from the pages, the needs
from the links of a chapter's line "*You need*: …" up to its first semicolon.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import NamedTuple

import yaml
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[3]
CONTENTS = ROOT / "_toc.yml"
MAP = ROOT / "book" / "map.yaml"
LINK = re.compile(r"\]\(([\w./-]+)\.ipynb\)")


class Page(NamedTuple):
    """One page: where it is, its title, its sentence, its place on the map ("" for none), what it needs."""

    name: str
    title: str
    shows: str
    at: str
    needs: tuple[str, ...]
    sections: tuple[str, ...] = ()
    label: str = ""

    @property
    def short(self) -> str:
        """What a box of the map says: its label in map.yaml, or else the title up to a colon."""
        return self.label or self.title.partition(":")[0]


def parts() -> dict[str, list[Page]]:
    """The caption of each part of the book → its pages, in order."""
    contents = yaml.safe_load(CONTENTS.read_text(encoding="utf-8"))["parts"]
    known = yaml.safe_load(MAP.read_text(encoding="utf-8"))["pages"]
    listed = [chapter["file"] for part in contents for chapter in part["chapters"]]
    if wrong := set(listed) ^ set(known):
        raise ExtensionError(
            f"_toc.yml and book/map.yaml must name the same pages; one does not: {sorted(wrong)}"
        )
    return {
        part["caption"]: [
            _page(chapter["file"], known[chapter["file"]], chapter.get("sections", ()))
            for chapter in part["chapters"]
        ]
        for part in contents
    }


def cuts() -> dict[str, str]:
    """What can be cut → its name on the map."""
    return yaml.safe_load(MAP.read_text(encoding="utf-8"))["cuts"]


def _page(name, known, sections):
    head = first_words(name)
    needed = re.search(r"^\*You need\*:([^;\n]*)", head, re.MULTILINE)
    found = LINK.findall(needed[1]) if needed else ()
    needs = tuple(posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in found)
    title = re.search(r"^# (.+)$", head, re.MULTILINE)[1].strip()
    below = tuple(section["file"] for section in sections)
    return Page(name, title, known["shows"], known.get("at", ""), needs, below, known.get("label", ""))


def source(name: str) -> Path:
    """The file of a page: a notebook or Markdown."""
    notebook = ROOT / f"{name}.ipynb"
    return notebook if notebook.exists() else ROOT / f"{name}.md"


def first_words(name: str) -> str:
    """The text at the top of a page, heading and needs in it: an opening picture may stand between them."""
    text = source(name).read_text(encoding="utf-8")
    if source(name).suffix != ".ipynb":
        return text
    return "\n".join(
        "".join(c["source"]) for c in json.loads(text)["cells"][:3] if c["cell_type"] == "markdown"
    )


def without_detours(needs: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """The same needs without those that another need has already: of a and b, where b needs a, only b."""

    def all_of(name):
        return {each for need in needs.get(name, ()) for each in {need, *all_of(need)}}

    return {
        name: [need for need in found if need in needs and not any(need in all_of(other) for other in found)]
        for name, found in needs.items()
    }
