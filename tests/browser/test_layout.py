"""The theme's layout is what our templates make of it, on every page; a theme that has moved is noticed."""

import re

import pytest
from built_book import built_pages

MUST_NOT_STAND = {
    "an icon that is read aloud": r'<(?:i|span)(?![^>]*aria-hidden)[^>]*\bclass="[^"]*\bfa-',
    "a tooltip that needs a script": r"\bdata-bs-title=",
    "a script no page needs": r'<script[^>]*\bsrc="[^"]*(?:fontawesome|bootstrap|searchtools|searchindex)',
    "a script that is fetched before the style": r'<link rel="preload" as="script"',
    "a triangle without a name": r'<summary>(?=<span class="toctree-)',
    "a search button called other than it shows": r"<button[^>]*\bsearch-button-field\b[^>]*aria-label",
    "a role that is deprecated": r'role="doc-biblioentry"',
    "an article that moves when its contents arrive": (
        r'(?s)<div class="bd-content">.*<div id="pst-secondary-sidebar"'
    ),
    "a line of a rank without its colour": r"(?m)^\[rank \d\](?=\s)",
    "a sentence of a check that does not wrap": r"<pre><span></span>[✓✗] ",
}
MUST_STAND = {
    "light colours without scripts": r'<html [^>]*data-theme="light"',
    "the reader's colours before a paint": r'(?s)<head>.*dataset\.theme = [^;]*matchMedia.*rel="stylesheet"',
    "a landmark around the side bar": r'<div id="pst-primary-sidebar" role="region" aria-label="Book"',
}


@pytest.fixture(scope="module")
def pages(site):
    """Name → HTML of every page."""
    return {name: (site / name).read_text(encoding="utf-8") for name in built_pages()}


@pytest.mark.parametrize("pattern", MUST_NOT_STAND.values(), ids=MUST_NOT_STAND)
def test_no_page_has(pages, pattern):
    assert [name for name, text in pages.items() if re.search(pattern, text)] == []


@pytest.mark.parametrize("pattern", MUST_STAND.values(), ids=MUST_STAND)
def test_every_page_has(pages, pattern):
    assert [name for name, text in pages.items() if not re.search(pattern, text)] == []
