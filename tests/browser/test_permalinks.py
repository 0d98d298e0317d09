"""Formulas, tables, outputs and published numbers have addresses that are made of the cells' names."""

from __future__ import annotations

import json
import re

import pytest
from allranks_book import ledger
from built_book import ROOT
from playwright.sync_api import expect

from allranks import claims

CHAPTERS = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.glob("notebooks/*/*.ipynb")
)
ZERO = "notebooks/sharding/zero"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_code_cell_formula_and_table_has_an_address(chapter, site):
    text = (site / f"{chapter}.html").read_text(encoding="utf-8")
    ids = re.findall(r"""\bid=["']([^"' ]+)""", text)
    cells = json.loads((ROOT / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    expected = {f"{cell['id']}-cell" for cell in cells if cell["cell_type"] == "code"}
    assert expected == {name for name in ids if name.endswith("-cell")}
    names = {cell["id"] for cell in cells}
    for kind, class_ in (("eq", r'<div class="math'), ("table", r'<table class="table')):
        found = [re.fullmatch(rf"(.+)-{kind}-\d+", name) for name in set(ids)]
        anchors = [one for one in found if one and one[1] in names]  # a heading may name a paper's table 1
        assert len(anchors) == len(re.findall(class_, text))
    ours = re.findall(r'class="headerlink" href="#([^"]+)"', text)
    assert [name for name in ours if ids.count(name) != 1] == []


def test_every_published_number_links_to_itself_and_is_linked_by_the_chapter_that_checks_it(site):
    page = (site / "book/claims.html").read_text(encoding="utf-8")
    for claim in claims.table().claims:
        assert page.count(f'class="headerlink" href="#{claim.id}"') == 1, claim.id
    ring = (site / "notebooks/foundations/all_reduce.html").read_text(encoding="utf-8")
    assert 'href="../../book/claims.html#patarasuk-ring">patarasuk-ring</a>' in ring


def test_a_string_that_is_no_published_number_stays_code():
    quoted = ledger.QUOTED.search('<span class="s2">&quot;halving-doubling&quot;</span>')
    assert ledger.claim_link(quoted, "x.html") == quoted[0]


def test_a_link_appears_on_hover_and_copies_its_address(browser, address):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{address}{ZERO}.html")
    output = page.locator(".cell_output.ar-linkable").first
    link = output.locator("a.headerlink")
    page.mouse.move(0, 0)
    expect(link).to_have_css("opacity", "0")
    output.hover()
    expect(link).to_have_css("opacity", "1")
    link.click()
    page.get_by_role("status").filter(has_text="Address copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.evaluate("location.href")
    assert page.evaluate("location.hash").endswith("-cell")
    assert page.locator(":target").count() == 1
    context.close()


def test_a_finger_finds_the_link_and_no_finger_hits_it_unseen(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 850}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"{address}notebooks/foundations/memory_of_training.html")
    formula = page.locator(".ar-linkable[id*='-eq-']").first
    link = formula.locator("a.headerlink")
    assert link.evaluate("one => getComputedStyle(one).pointerEvents") == "none"
    formula.tap()
    expect(link).to_have_css("opacity", "1")
    box = link.bounding_box()
    assert min(box["width"], box["height"]) >= 44
    assert box["x"] + box["width"] <= 390
    context.close()
