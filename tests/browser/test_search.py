"""The search page finds what readers type, as they type it, from a server and from a disk."""

from __future__ import annotations

import gzip
from urllib.parse import quote

import pytest
from allranks_book import search
from built_book import AXE, built_pages
from test_pages import FINDINGS

WANTED = {
    "ZeRO": "notebooks/sharding/zero.html",
    "1F1B": "notebooks/pipeline_parallel/one_f_one_b.html",
    "all-reduce": "notebooks/foundations/all_reduce.html",
    "all_reduce": "notebooks/foundations/all_reduce.html",
    "allreduce": "notebooks/foundations/all_reduce.html",
    "Ψ": "book/notation.html",
    "2(p-1)/p": "notebooks/foundations/cost_of_a_collective.html",
    "FSDP": "notebooks/sharding/fsdp.html",
    "all-gather": "book/glossary.html#term-all-gather",
    "no_sync": "notebooks/data_parallel/ddp_in_practice.html",
    "zero bubble": "notebooks/pipeline_parallel/zero_bubble.html",
    "bf16": "notebooks/foundations/precision.html",
    "stragglers": "book/glossary.html#term-straggler",
    "Patarasuk": "notebooks/foundations/all_reduce.html",
    "3.14e23": "book/claims.html",
}
INDEX_KB_A_PAGE = 8  # the index is loaded when a reader searches


@pytest.fixture(scope="module", params=["http", "file"])
def searched(request, address, site, open_page):
    """A function that searches, from a server or from a disk, and the page it searches on."""
    start = address if request.param == "http" else f"file://{site}/"
    visit = open_page(f"{start}search.html")

    def search_for(query):
        visit.page.goto(f"{start}search.html?q={quote(query)}")
        visit.page.locator(".ar-found:not(:empty)").wait_for()
        return visit.page

    yield search_for
    assert (visit.problems, visit.foreign) == ([], [])
    visit.page.close()


@pytest.mark.parametrize("query", WANTED)
def test_the_page_a_reader_wants_is_among_the_first_three(searched, query):
    page = searched(query)
    results = page.locator(".ar-results > li")
    links = results.locator("h2 a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert WANTED[query] in links[:3]
    result = results.nth(links.index(WANTED[query]))
    assert len(result.locator("p").first.inner_text()) > 25
    assert result.locator("mark").count() > 0


def test_all_words_are_wanted_and_some_are_shown_if_no_section_has_all(searched):
    page = searched("pipeline bubble")
    assert "results for" in page.locator(".ar-found").inner_text()
    assert page.locator(".ar-results mark").count() > 1
    page = searched("bubble xyzzy")
    assert "No section has all words" in page.locator(".ar-found").inner_text()
    assert page.locator(".ar-results > li").count() > 0


def test_words_in_quotes_are_found_as_without(searched):
    found = searched("pipeline bubble").locator(".ar-results h2 a").all_inner_texts()
    assert searched("“pipeline bubble”").locator(".ar-results h2 a").all_inner_texts() == found != []


def test_without_a_result_the_page_says_what_to_try(searched):
    page = searched("straglers")
    assert page.locator(".ar-results > li").count() == 0
    page.locator(".ar-found a", has_text="straggler").click()
    page.locator(".ar-results > li").first.wait_for()
    page = searched("")
    assert page.locator(".ar-found a", has_text="1F1B").count() == 1


def test_what_is_typed_is_shown_as_text(searched):
    page = searched("<img src=x onerror=alert(1)>")
    assert "<img src=x" in page.locator(".ar-found").inner_text()
    assert page.locator(".ar-search img").count() == 0


def test_ctrl_k_searches_from_a_chapter_and_typing_changes_the_results(address, open_page):
    page = open_page(f"{address}notebooks/foundations/ranks.html").page
    page.keyboard.press("Control+k")
    page.keyboard.type("no_sync")
    page.keyboard.press("Enter")
    page.locator(".ar-results > li").first.wait_for()
    page.locator(".ar-search input").fill("zero bubble")
    page.locator(".ar-results h2 a", has_text="half a backward").wait_for()
    page.wait_for_url("**/search.html?q=zero%20bubble")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.ar-results') !== null")
    page.close()


def test_results_fit_a_phone_and_are_accessible(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 850}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"{address}search.html?q=all_reduce")
    page.locator(".ar-results > li").nth(3).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for link in page.locator(".ar-results h2 a").all()[:5]:
        assert link.bounding_box()["height"] >= 44
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert page.evaluate(FINDINGS) == []
    context.close()


def test_every_address_in_the_index_exists_and_the_index_is_small(site, address, open_page):
    index = gzip.compress((site / "searchindex.js").read_bytes())
    assert len(index) < INDEX_KB_A_PAGE * 1000 * len(built_pages())
    page = open_page(f"{address}search.html?q=rank").page
    page.locator(".ar-results > li").first.wait_for()
    pages = page.evaluate("allRanksIndex")
    page.close()
    assert len(pages) > 30
    for url, title, _, sections in pages:
        text = (site / url).read_text(encoding="utf-8")
        assert title
        missing = [
            anchor
            for anchor, *_ in sections
            if anchor and f'id="{anchor}"' not in text and f"id='{anchor}'" not in text
        ]
        assert missing == [], url


@pytest.mark.parametrize(
    ("latex", "typed"),
    [
        (r"2\frac{p-1}{p}", "2(p-1)/p"),
        (r"\frac{1}{p}", "1/p"),
        (r"2\Psi\frac{N-1}{N}", "2Ψ(N-1)/N"),
        (r"(p-1)\left(T_F + T_B\right)", "(p-1)(T_F+T_B)"),
        (r"\lceil \log_2 p \rceil", "log_2 p"),
    ],
)
def test_a_formula_is_stored_as_one_would_type_it(latex, typed):
    assert search.in_one_line(latex) == typed
