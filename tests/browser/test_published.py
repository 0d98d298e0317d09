"""Every address that was ever published still leads somewhere, and every new one is in the list."""

from __future__ import annotations

import pytest
from addresses import PUBLISHED, complaints, published
from allranks_book.addresses import leading_on, moved_sections, offered, redirects


def test_the_book_keeps_its_addresses(site):
    if said := complaints(published(PUBLISHED), offered(site), redirects()):
        pytest.fail(said, pytrace=False)


def test_redirects_lead_to_addresses_of_the_book(site):
    assert set(redirects().values()) <= offered(site)


@pytest.mark.parametrize("scripts", [True, False])
def test_an_old_page_leads_its_reader_on(scripts, tmp_path, open_page):
    (tmp_path / "new.html").write_text("<title>new</title><h2 id='part'>Part</h2>", encoding="utf-8")
    (tmp_path / "old.html").write_text(leading_on("old.html", "new.html"), encoding="utf-8")
    page = open_page(f"{(tmp_path / 'old.html').as_uri()}#part", java_script_enabled=scripts).page
    page.wait_for_url("**/new.html#part" if scripts else "**/new.html*")
    page.close()


def test_a_section_that_moved_shows_where_it_went(tmp_path, site, open_page):
    style = (site / "_static" / "opening.css").as_uri()
    text = moved_sections("one.html", {"one.html#part": "two.html#part"})
    file = tmp_path / "one.html"
    file.write_text(f'<link rel="stylesheet" href="{style}"><h1>One</h1>{text}', encoding="utf-8")
    page = open_page(file.as_uri()).page
    assert page.locator("#part").is_hidden()
    page.goto(f"{file.as_uri()}#part")
    assert page.locator("#part a").is_visible()
    assert page.locator("#part a").get_attribute("href") == "two.html#part"
    page.close()
