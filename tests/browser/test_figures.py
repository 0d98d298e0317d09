"""A stored figure takes the colours of the page, and is told in words where it is not seen."""

from __future__ import annotations

import re

import pytest
from allranks_book.figures import drawing_html, figure_html

from allranks import plots

WORDS = "Loss <against> the step: it falls from 3 to 1."
FIGURE = {
    "data": [{"type": "scatter", "x": [1, 2, 3], "y": [3, 2, 1], "name": "</script>"}],
    "layout": {"height": 300, "xaxis": {"title": {"text": "step"}}},
}


@pytest.fixture
def page_with_figure(site, tmp_path):
    """The address of a page outside the book that loads the book's style sheets and script."""
    static = f"{site.as_uri()}/_static"
    sheets = "".join(f'<link rel="stylesheet" href="{static}/{name}.css">' for name in ("palette", "cells"))
    page = tmp_path / "page.html"
    page.write_text(
        f'<!doctype html><html lang="en" data-theme="light" data-content_root="{site.as_uri()}/">'
        f'<title>One</title>{sheets}<script defer src="{static}/plotly_figures.js"></script>'
        f"{figure_html(FIGURE, WORDS)}",
        encoding="utf-8",
    )
    return page.as_uri()


def test_it_is_drawn_in_the_colours_of_the_page(page_with_figure, open_page):
    visit = open_page(page_with_figure)
    figure = visit.page.locator("figure.ar-plotly.ar-drawn")
    line = figure.locator("svg.main-svg path.js-line")
    line.wait_for(state="attached")
    assert visit.problems == [] and visit.foreign == []
    assert figure.locator("[role=img]").get_attribute("aria-label") == WORDS
    colour = "path => getComputedStyle(path).stroke"
    light = line.evaluate(colour)
    visit.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    visit.page.wait_for_function(
        f"getComputedStyle(document.querySelector('svg.main-svg path.js-line')).stroke !== '{light}'"
    )
    visit.page.close()


def test_before_printing_it_is_drawn_unseen(page_with_figure, open_page):
    visit = open_page(page_with_figure)
    visit.page.add_init_script("window.IntersectionObserver = class { observe() {} unobserve() {} };")
    visit.page.reload()
    assert visit.page.locator(".ar-drawn").count() == 0
    visit.page.evaluate("allRanksDraw()")
    assert visit.page.locator("figure.ar-drawn svg path.js-line").count() == 1
    visit.page.close()


def test_it_is_told_in_words_without_scripts(page_with_figure, open_page):
    visit = open_page(page_with_figure, java_script_enabled=False)
    assert visit.page.locator("figure.ar-plotly figcaption").is_visible()
    assert visit.page.locator("figure.ar-plotly figcaption").inner_text() == WORDS
    visit.page.close()


def test_a_drawing_takes_the_colours_of_the_page_and_fits_a_phone(site, tmp_path, open_page):
    static, drawing = f"{site.as_uri()}/_static", plots.bars({"a": {"one": 2, "other": 1}}, "bytes")
    sheets = "".join(f'<link rel="stylesheet" href="{static}/{name}.css">' for name in ("palette", "cells"))
    page = tmp_path / "page.html"
    page.write_text(
        f'<!doctype html><html lang="en" data-theme="light"><title>One</title>{sheets}'
        f"{drawing_html(drawing.svg, WORDS)}",
        encoding="utf-8",
    )
    visit = open_page(page.as_uri())
    figure = visit.page.locator(".ar-figure")
    assert figure.get_attribute("aria-label") == WORDS
    paper = "svg => getComputedStyle(svg.querySelector('rect')).fill"
    light = figure.locator("svg").evaluate(paper)
    visit.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert figure.locator("svg").evaluate(paper) != light
    visit.page.set_viewport_size({"width": 390, "height": 844})
    assert figure.locator("svg").bounding_box()["width"] <= 390
    visit.page.close()


def test_figures_are_numbered_from_one_on_each_page(site):
    numbered = 0
    for page in site.glob("notebooks/*/*.html"):
        text = page.read_text(encoding="utf-8")
        numbers = [int(each) for each in re.findall(r'caption-number">Fig\. (\d+)', text)]
        assert numbers == list(range(1, len(numbers) + 1)), page.name
        numbered += bool(numbers)
    assert numbered > 5
