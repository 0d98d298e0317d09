"""What must change in the theme's finished HTML so that pages are light and read well aloud?

Each repair names its reason; one that finds its place on no page warns, because the theme has then moved.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
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
        "24 kB of script draw tooltips, which a browser draws itself",
        re.compile(r'\s*<script defer src="[^"]*bootstrap\.js[^"]*"></script>'),
        "",
    ),
    Repair(
        "a tooltip of the browser's own is called title",
        re.compile(r"data-bs-title="),
        "title=",
    ),
    Repair(
        "the search index grows with the book and only the search page uses it",
        re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>'),
        "",
        spare_search_page=True,
    ),
    Repair(
        "a script that waits for the page should not take the line from the style sheet",
        re.compile(r'\s*<link rel="preload" as="script"[^>]*>'),
        "",
    ),
    Repair(
        "the colours are known before the first paint, and without scripts they are the light ones",
        re.compile(r'data-theme="auto"(?=>)'),
        'data-theme="light"',
    ),
    Repair(
        "the theme's script knows the colours only when it has come, after the first paint",
        re.compile(r'localStorage\.getItem\("theme"\) \|\| "auto"'),
        '{light: "light", dark: "dark"}[document.documentElement.dataset.mode]'
        ' || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")',
    ),
    Repair(
        "the article must not move when the contents beside it, later in the page, arrive (still.css)",
        re.compile(r'<div class="bd-content">(?=.*<div id="pst-secondary-sidebar")', re.DOTALL),
        '<div class="bd-content ar-has-contents">',
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


def unname_contents(app, doctree, docname) -> None:
    """sphinx-exercise gives the content of every exercise and solution the same id; nothing refers to it."""
    for section in doctree.findall(nodes.section):
        if section["ids"] in (["exercise-content"], ["solution-content"]):
            section["ids"] = []


def write_front_door(app, exception) -> None:
    """The address of the book itself leads to its first page; Jupyter Book's page for this has no title."""
    if exception or app.builder.format != "html":
        return
    door = f"""<!DOCTYPE html>
<html lang="{app.config.language}">
<head>
<meta charset="utf-8">
<title>{app.config.project}</title>
<meta http-equiv="refresh" content="0; url={app.config.root_doc}.html">
<link rel="canonical" href="{app.config.root_doc}.html">
</head>
<body><p><a href="{app.config.root_doc}.html">{app.config.project}</a></p></body>
</html>
"""
    Path(app.outdir, "index.html").write_text(door, encoding="utf-8")
    for template in Path(app.outdir, "_static").glob("*macros.html"):
        template.unlink()  # of the themes, no pages


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
    """Repair what was read, and the pages when Sphinx has written them."""
    app.add_css_file("still.css")
    app.connect("doctree-resolved", unname_contents)
    app.connect("build-finished", write_front_door, priority=100)
    app.connect("build-finished", repair_pages)
