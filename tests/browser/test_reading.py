"""What a reader does: searches, switches the light off, opens the book from a disk."""

from __future__ import annotations

import pytest
from built_book import built_pages

FIRST_PAGE = "book/index.html"
# From a disk each of these loads something in a way of its own: figures, explorers, tables, what is searched.
KINDS = (
    FIRST_PAGE,
    "book/claims.html",
    "book/reading_list.html",
    "notebooks/data_parallel/ddp_inside.html",
    "notebooks/labs/fsdp.html",
    "notebooks/reference/explorers.html",
    "search.html",
)


@pytest.fixture
def first_page(address, open_page):
    visit = open_page(address + FIRST_PAGE)
    yield visit
    visit.page.close()


def test_the_address_of_the_book_leads_to_its_first_page(address, open_page):
    visit = open_page(address)
    visit.page.wait_for_url(f"**/{FIRST_PAGE}")
    assert visit.page.locator("article h1").is_visible()


def test_search_finds_a_page_and_leads_to_it(first_page):
    page = first_page.page
    page.keyboard.press("Control+k")
    page.locator("#pst-search-dialog input[type=search]").fill("latency")
    page.keyboard.press("Enter")
    result = page.locator(".ar-results li a", has_text="Notation").first
    result.wait_for()
    result.click()
    page.wait_for_url("**/book/notation.html*")
    assert first_page.problems == [] and first_page.foreign == []


def test_the_colour_switch_goes_round(first_page):
    page = first_page.page
    seen = set()
    for _ in range(3):
        page.locator(".article-header-buttons .theme-switch-button").click()
        seen.add(page.evaluate("document.documentElement.dataset.mode"))
    assert seen == {"light", "dark", "auto"}


@pytest.mark.parametrize("name", built_pages())
def test_opens_from_a_disk(name, site, open_page, request):
    if name not in KINDS and not request.config.getoption("every_test"):
        pytest.skip("one page of each kind is opened from a disk; every night, with --every-test, all")
    visit = open_page((site / name).as_uri())
    visit.scroll_through()
    assert visit.problems == [] and visit.foreign == []
    look = "document.querySelector('.katex') && getComputedStyle(document.querySelector('.katex')).fontFamily"
    assert visit.page.evaluate(look) is None or "KaTeX" in visit.page.evaluate(look)
    assert visit.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ar-rank-0')")
    visit.page.close()
