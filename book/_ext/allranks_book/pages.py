"""What must change in the theme's finished HTML so that pages are light and read well aloud?

Each repair names its reason; one that finds its place on no page warns, because the theme has then moved.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from sphinx.util import logging

logger = logging.getLogger(__name__)
MARK = '<html data-repaired="" '


class Repair(NamedTuple):
    """One substitution: why, the pattern, its replacement, and whether the search page keeps the original."""

    why: str
    pattern: re.Pattern
    replacement: str
    spare_search_page: bool = False


REPAIRS = [
    Repair(
        "half a megabyte of script draws icons that the web font draws already",
        re.compile(r'\s*<script defer src="[^"]*fontawesome\.js[^"]*"></script>'),
        "",
    ),
    Repair(
        "the search index grows with the book and only the search page uses it",
        re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>'),
        "",
        spare_search_page=True,
    ),
    Repair(
        "an icon is decoration beside the name of its button",
        re.compile(r'<(i|span) class="([^"]*\bfa-[^"]*)"(?![^>]*aria-hidden)'),
        r'<\1 aria-hidden="true" class="\2"',
    ),
    Repair(
        "the search button's name must hold the words it shows",
        re.compile(r'(<button class="btn search-button-field[^>]*?) aria-label="[^"]*"'),
        r"\1",
    ),
    Repair(
        "the side bar's logo and search belong to a landmark",
        re.compile(r'<div id="pst-primary-sidebar"'),
        '<div id="pst-primary-sidebar" role="region" aria-label="Book"',
    ),
    Repair(
        "an entry of the bibliography is an item of its list; its own role is deprecated",
        re.compile(r'role="doc-biblioentry"'),
        'role="listitem"',
    ),
    Repair(
        "a line that a rank printed begins with its number, in the rank's colour",
        re.compile(r"(?m)^(<div[^>]*\bstream\b[^>]*><div[^>]*><pre>)?(<span></span>)?\[rank (\d)\](?=\s)"),
        r'\1\2<span class="ar-mark ar-mark-\3">[rank \3]</span>',
    ),
    Repair(
        "the triangle that unfolds a page's sub-pages has no name",
        re.compile(
            r'(<a class="[^"]*" href="[^"]*">([^<"]*)</a><details[^>]*>)<summary>(?=<span class="toctree-)'
        ),
        r'\1<summary aria-label="Pages below \2">',
    ),
    Repair(
        "what a check says is a sentence, and wraps like one",
        re.compile(r"<pre>(?=<span></span>[✓✗] )"),
        '<pre class="ar-verdict">',
    ),
]


def repair_pages(app, exception) -> None:
    """Apply every repair once to every page that this build wrote."""
    if exception or app.builder.format != "html":
        return
    found = dict.fromkeys(REPAIRS, 0)
    every_page_is_new = True
    for page in sorted(Path(app.outdir).rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        if MARK in text or "<html " not in text:
            every_page_is_new &= MARK not in text
            continue
        for repair in REPAIRS:
            if repair.spare_search_page and page.name == "search.html":
                continue
            text, count = repair.pattern.subn(repair.replacement, text)
            found[repair] += count
        page.write_text(text.replace("<html ", MARK, 1), encoding="utf-8")
    for repair, count in found.items():
        if every_page_is_new and not count:
            logger.warning("a repair of the pages found nothing to do, has the theme changed? %s", repair.why)


def setup(app) -> None:
    """Repair the pages when Sphinx has written them."""
    app.connect("build-finished", repair_pages)
