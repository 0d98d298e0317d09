"""The lecturers' pages lead where they say, and open their notes and answers without a script."""

import re

import pytest

PAGES = ["instructors", "question_bank"]
LINK = re.compile(r'<a [^>]*?href="([^"#:]*)#([^"]+)"')


def ids(page):
    """The names of all places of a built page."""
    return set(re.findall(r"""\bid=["']([^"']+)["']""", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_place_in_the_book_finds_it(site, page):
    start = site / "book" / f"{page}.html"
    places, missing = {}, []
    links = LINK.findall(start.read_text(encoding="utf-8"))
    for address, place in links:
        target = (start.parent / address).resolve() if address else start
        if target not in places:
            places[target] = ids(target)
        if place not in places[target]:
            missing.append(f"{address}#{place}")
    assert missing == [] and len(links) > 150


def test_without_a_script_notes_and_answers_open_and_links_lead_to_the_box(address, browser):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(f"{address}book/question_bank.html")
    question = page.locator(".ar-question").first
    answer = question.locator("details p").first
    assert not answer.is_visible()
    question.locator("summary").click()
    assert answer.is_visible() and len(answer.inner_text()) > 20
    question.locator("a").first.click()
    assert page.locator(":target").evaluate("box => box.className").count("predict") == 1
    page.goto(f"{address}book/instructors.html")
    note = page.locator(".ar-notes").first
    assert not note.locator("dd").first.is_visible()
    note.locator("summary").click()
    assert note.locator("dd").first.is_visible()
    context.close()
