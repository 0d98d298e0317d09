"""A term of the glossary and a citation show their entry at the link: by mouse, keyboard and finger."""

from __future__ import annotations

import re

import pytest
from allranks_book import terms
from docutils import nodes
from sphinx import addnodes

CHAPTER = "notebooks/sharding/zero.html"
GATHER = 'a[href$="glossary.html#term-all-gather"]:not(.ar-whole)'
CITED = 'a[href*="bibliography.html#"]'
GLOSSARY = """
:::{glossary}
rank
  A process.

.. also: shards, sharded
sharding
  Parts instead of copies.

.. only: buckets
bucket
  Several gradients.

ZeRO
  No copies.

zero bubble
  Schedules.
:::
"""


def marks(*children: nodes.Node) -> list[str]:
    paragraph = nodes.paragraph("", "", *children)
    words = terms.forms(GLOSSARY)
    terms.marked(paragraph, words, terms.pattern(words), "notebooks/x", set())
    return [f"{link.astext()} → {link['reftarget']}" for link in paragraph.findall(addnodes.pending_xref)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ranks wait for a rank.", ["Ranks → rank"]),
        ("cross-rank, rank-2, ranking, RANK, x.rank, rank=3", []),
        ("sharded, then sharding", ["sharded → sharding"]),
        ("a bucket of water, two buckets", ["buckets → bucket"]),
        ("from zero, a ZeRO, a zero\nbubble", ["ZeRO → ZeRO", "zero\nbubble → zero bubble"]),
    ],
)
def test_whole_words_are_marked_once(text, expected):
    assert marks(nodes.Text(text)) == expected


def test_code_links_and_what_follows_a_definition_stay_unmarked():
    code, link = nodes.literal("", "rank"), nodes.reference("", "shards", refuri="x")
    defined = nodes.strong("", "rank")
    assert marks(code, link, defined, nodes.Text(" is a rank, and sharding")) == ["sharding → sharding"]


def test_every_form_is_found_by_the_pattern_and_leads_to_its_term():
    words = terms.forms(terms.GLOSSARY.read_text(encoding="utf-8"))
    finder = terms.pattern(words)
    assert len(words) > 100
    for form, term in words.items():
        assert finder.fullmatch(form), form
        assert terms.term_of(form, words) == term


def test_no_chapter_marks_a_term_twice(site):
    for page in sorted(site.glob("notebooks/[!r]*/*.html")):
        found = re.findall(r'href="[^"]*glossary.html(#term-[^"]+)"', page.read_text(encoding="utf-8"))
        assert len(found) == len(set(found)), page.name
        assert found or "solved" in page.name, page.name


@pytest.fixture(params=["http", "file"])
def chapter(request, address, site, open_page):
    start = address if request.param == "http" else f"file://{site}/"
    visit = open_page(start + CHAPTER)
    yield visit
    assert (visit.problems, visit.foreign) == ([], [])
    visit.page.close()


def test_hover_shows_the_entry_and_escape_closes_it(chapter):
    page, card = chapter.page, chapter.page.locator("#ar-card-of")
    page.locator(GATHER).hover()
    card.wait_for()
    assert "every rank ends up with all parts" in card.inner_text()
    assert card.locator(".katex").count() == 1
    card.hover()
    page.wait_for_timeout(400)
    assert card.is_visible()
    page.keyboard.press("Escape")
    assert not card.is_visible()
    page.locator(CITED).first.hover()
    card.wait_for()
    assert "Rajbhandari" in card.inner_text()


def test_keyboard_focus_shows_the_entry_and_tab_goes_on_in_the_text(address, open_page):
    page = open_page(address + CHAPTER).page
    link, card = page.locator(GATHER), page.locator("#ar-card-of")
    before = page.locator(CITED, has_text="You").first
    before.focus()
    card.filter(has_text="Large batch").wait_for()
    for _ in range(5):  # past links to other pages
        page.keyboard.press("Tab")
        if link.evaluate("one => document.activeElement === one"):
            break
    card.filter(has_text="every rank ends up with all parts").wait_for()
    assert link.get_attribute("aria-describedby") == card.get_attribute("id")
    assert before.get_attribute("aria-describedby") is None
    page.keyboard.press("Escape")
    assert not card.is_visible()
    assert link.evaluate("one => document.activeElement === one")
    page.keyboard.press("Tab")
    assert not card.is_visible()
    assert link.get_attribute("aria-describedby") is None
    page.close()


def test_tap_shows_the_entry_within_a_phone(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 850}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(address + CHAPTER)
    card = page.locator("#ar-card-of")
    for selector in (GATHER, CITED):
        page.locator(selector).first.tap()
        card.wait_for()
        box = card.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert page.url.endswith(CHAPTER)
        page.locator(selector).first.tap()
        card.wait_for(state="hidden")  # the click comes after the tap
    context.close()


def test_without_scripts_a_term_is_a_link(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + CHAPTER)
    page.locator(GATHER).click()
    page.wait_for_url("**/book/glossary.html#term-all-gather")
    context.close()
