"""The page of published numbers is a whole table; scripts add filters, which stand in the address."""

from __future__ import annotations

import pytest

PAGE = "book/claims.html"
SHOWN = ".ar-claims tbody tr[id]:visible"
ENTRIES = ".ar-claims tbody tr[id]"


@pytest.fixture
def page(address, open_page):
    visit = open_page(address + PAGE, PAGE)
    yield visit.page
    assert visit.problems == [] and visit.foreign == []
    visit.page.close()


def statuses(page):
    return set(page.locator(f"{SHOWN} td:last-child").all_inner_texts())


def test_the_whole_table_is_there_without_scripts(address, open_page):
    visit = open_page(address + PAGE, PAGE, java_script_enabled=False)
    assert visit.page.locator(SHOWN).count() == visit.page.locator(ENTRIES).count() > 50
    assert visit.page.locator(".ar-filters").count() == 0
    visit.page.close()


def test_each_filter_has_a_label_and_starts_with_all(page):
    for label in ("Paper", "Status", "Chapter"):
        assert page.get_by_label(label, exact=True).input_value() == ""
    entries = page.locator(ENTRIES).count()
    assert page.locator(SHOWN).count() == entries
    assert page.locator(".ar-filters [aria-live=polite]").inner_text() == f"all {entries} numbers"


def test_a_filter_shows_what_it_says_and_announces_how_many(page):
    page.get_by_label("Status", exact=True).select_option("erratum")
    shown = page.locator(SHOWN).count()
    assert statuses(page) == {"erratum"}
    assert page.locator(".ar-filters output").inner_text().startswith(f"{shown} of ")
    assert page.evaluate("location.hash") == "#status=erratum"


def test_filters_are_combined_and_headings_without_entries_go(page):
    page.get_by_label("Paper", exact=True).select_option("goyal2017")
    page.get_by_label("Status", exact=True).select_option("reproduced")
    assert statuses(page) == {"reproduced"}
    assert page.locator(".ar-claims .ar-paper:visible").count() == 1
    assert page.locator(".ar-claims .ar-place:visible", has_text="abstract").count() == 0


def test_an_address_with_a_filter_opens_filtered(address, open_page):
    visit = open_page(f"{address}{PAGE}#paper=you2020&status=quoted", PAGE)
    assert statuses(visit.page) == {"quoted"}
    assert visit.page.get_by_label("Paper", exact=True).input_value() == "you2020"
    visit.page.close()


@pytest.mark.parametrize("fragment", ["paper=nobody1900", "50%", "paper=50%"])
def test_a_filter_that_does_not_exist_shows_all(address, open_page, fragment):
    visit = open_page(f"{address}{PAGE}#{fragment}", PAGE)
    assert visit.page.locator(SHOWN).count() == visit.page.locator(ENTRIES).count()
    assert visit.problems == []
    visit.page.close()


def test_a_link_to_a_hidden_entry_shows_it(page):
    page.get_by_label("Status", exact=True).select_option("quoted")
    page.locator(".ar-errata li a").first.click()
    page.wait_for_function("document.querySelector('.ar-claims tr:target')?.offsetHeight > 0")
    assert page.get_by_label("Status", exact=True).input_value() == ""


def test_filters_work_from_a_disk(site, open_page):
    visit = open_page((site / PAGE).as_uri(), PAGE)
    visit.page.get_by_label("Status", exact=True).select_option("quoted")
    assert statuses(visit.page) == {"quoted"}
    assert visit.problems == []
    visit.page.close()
