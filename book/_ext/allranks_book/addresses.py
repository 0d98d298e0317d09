"""Which addresses does the book offer, and where do those lead that it once had?

`tests/published.txt` lists all that were ever published; `tools/addresses.py` compares it with the book.
What moved stands in `book/redirects.yaml`: an old page is written again as one that leads on, and an old
section as a line at the end of its page, which shows when its address is opened. Neither needs a script.
"""

from __future__ import annotations

import posixpath
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
REDIRECTS = ROOT / "book" / "redirects.yaml"
ELEMENTS = {"section", "span", "dt", "div", "figure", "p", "table", "tr", "td", "li"}
# numbered as they come, the same in every exercise, or part of a control
UNSTABLE = re.compile(r"id\d+|.*-solution-\d+|(exercise|solution)-content|.*-refusal")
LEADS_ON = '<meta http-equiv="refresh"'


class Anchors(HTMLParser):
    """The anchors of an article that others may link to: of headings, terms, exercises, figures, formulas."""

    def __init__(self, text: str):
        super().__init__()
        self.found: set[str] = set()
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Take the `id` of what stands in the article."""
        attributes = dict(attrs)
        self.inside |= tag == "article"
        name = attributes.get("id")
        if self.inside and name and tag in ELEMENTS and not UNSTABLE.fullmatch(name):
            self.found.add(name)

    def handle_endtag(self, tag):
        """Leave the article."""
        self.inside &= tag != "article"


def offered(site: Path) -> set[str]:
    """Every page of a built book, as a path below its root, and `page#anchor` for each of its anchors."""
    found = set()
    for file in site.rglob("*.html"):
        page = file.relative_to(site).as_posix()
        if page.startswith("_static/"):
            continue
        text = file.read_text(encoding="utf-8")
        found |= {page, *(f"{page}#{anchor}" for anchor in Anchors(text).found)}
    return found


def redirects(file: Path = REDIRECTS) -> dict[str, str]:
    """Old address → new one, both below the root of the book."""
    declared = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    for old, new in declared.items():
        for address in (old, new):
            if not re.fullmatch(r"[\w./-]+\.html(#[^#\s]+)?", str(address)):
                raise ValueError(
                    f"{file.name}: {address!r} is no address below the book's root; "
                    "write it like notebooks/foundations/ranks.html or book/glossary.html#term-rank"
                )
        if new in declared:
            raise ValueError(f"{file.name}: {old} leads to {new}, which leads on: name its last target")
    return declared


def way(old: str, new: str) -> str:
    """The address of `new`, relative to the page of `old`."""
    page, mark, anchor = new.partition("#")
    return posixpath.relpath(page, posixpath.dirname(old) or ".") + mark + anchor


def leading_on(old: str, new: str) -> str:
    """The page at an old address; with scripts, an anchor in the address is kept."""
    target = escape(way(old, new))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>This page moved</title>'
        f'<noscript>{LEADS_ON} content="0; url={target}"></noscript><link rel="canonical" href="{target}">'
        f"<script>location.replace({way(old, new)!r} + location.search + location.hash)</script></head>"
        f'<body><p>This page moved: <a href="{target}">{escape(new)}</a></p></body></html>\n'
    )


def moved_sections(page: str, declared: dict[str, str]) -> str:
    """A line for each section that left the page, shown when its old address is opened."""
    lines = []
    for old, new in declared.items():
        left, _, anchor = old.partition("#")
        if anchor and left == page:
            link = f'<a href="{escape(way(old, new))}">{escape(new)}</a>'
            lines.append(f'<p class="ar-moved" id="{escape(anchor)}">What stood here moved: {link}</p>')
    return "".join(lines)


def add_moved_sections(app, pagename, templatename, context, doctree) -> None:
    """End each page with the sections that left it."""
    if doctree is not None:
        context["body"] += moved_sections(f"{pagename}.html", redirects())


def write_pages(app, exception) -> None:
    """Write a page at the old address of each page that moved; one that still exists is an error."""
    if exception or app.builder.format != "html":
        return
    for old, new in redirects().items():
        file = Path(app.outdir, old)
        if "#" in old:
            continue
        if file.exists() and LEADS_ON not in file.read_text(encoding="utf-8"):
            raise ValueError(
                f"redirects.yaml: {old} leads to {new}, but that page is there: take out the line"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(leading_on(old, new), encoding="utf-8")


def setup(app) -> None:
    """Lead on from old addresses."""
    app.connect("html-page-context", add_moved_sections)
    app.connect("build-finished", write_pages)
