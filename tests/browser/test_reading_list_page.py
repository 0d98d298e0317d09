"""The reading list is whole without scripts; they filter, sort, plan, mark and export."""

from __future__ import annotations

import json
import re

import pytest
from built_book import AXE
from playwright.sync_api import expect
from test_pages import FINDINGS

pytestmark = pytest.mark.stamped("page", "book/reading_list")
PAGE = "book/reading_list.html"
CARD = "book/quick_reference.html"
WORKS = "article section:has(> .ar-about)"
SHOWN = f"{WORKS}:visible"


@pytest.fixture
def page(address, open_page):
    visit = open_page(address + PAGE, PAGE)
    yield visit.page
    assert visit.problems == [] and visit.foreign == []
    visit.page.close()


def stored(page):
    """Key → what the page knows of each work."""
    data = json.loads(page.locator("#ar-reading-data").text_content())
    return {work["key"]: work for work in data["works"]}


def shown(page):
    """The keys of the visible works, from top to bottom."""
    places = page.locator(f"{SHOWN} > [id^=read-]")
    return [place.removeprefix("read-") for place in places.evaluate_all("all => all.map(one => one.id)")]


def choose(page, **choices):
    for label, option in choices.items():
        page.get_by_label(label.replace("_", " "), exact=True).select_option(option)


def downloaded(page, button):
    with page.expect_download() as started:
        page.get_by_role("button", name=button).click()
    assert started.value.suggested_filename == "all-ranks-reading.bib"
    return started.value.path().read_text(encoding="utf-8")


def keys_of(bibtex):
    return re.findall(r"^@\w+\{([\w-]+),", bibtex, re.MULTILINE)


# ---- without scripts ----


def test_the_whole_list_is_there_without_scripts(address, open_page):
    visit = open_page(address + PAGE, PAGE, java_script_enabled=False)
    page = visit.page
    works = stored(page)
    assert page.locator(SHOWN).count() == len(works) > 100
    assert page.locator(f"{WORKS} a.external").count() >= len(works)
    assert page.locator("form.ar-reading, .ar-read").count() == 0
    terms = set(page.locator(f"{WORKS} > dl > dt").all_inner_texts())
    assert {"Insight", "Read", "First", "Runs in", "Related", "Checked", "State", "Corrected"} == terms
    page.close()


def test_the_bibliography_can_be_fetched_without_scripts(address, open_page, site):
    visit = open_page(address + PAGE, PAGE, java_script_enabled=False)
    link = visit.page.locator("article a.download").get_attribute("href")
    assert "@inproceedings{rajbhandari2020," in (site / "book" / link).read_text(encoding="utf-8")
    visit.page.close()


# ---- filters and order ----


def test_each_question_has_a_label_and_all_is_shown_at_first(page):
    for label in ("Topic", "Kind", "Priority", "Time at most", "Chapter", "Progress", "Sort by"):
        assert page.get_by_label(label, exact=True).input_value() == ""
    works = stored(page)
    assert shown(page) == list(works)
    assert page.locator("form.ar-reading output").inner_text().startswith(f"all {len(works)} works")


@pytest.mark.parametrize(
    "label, option, fits",
    [
        ("Topic", "sharding", lambda work: work["topic"] == "sharding"),
        ("Kind", "blog", lambda work: work["kind"] == "blog"),
        ("Priority", "3", lambda work: work["priority"] == 3),
        ("Time at most", "30", lambda work: work["minutes"] <= 30),
        ("Chapter", "sharding/zero", lambda work: "sharding/zero" in work["chapters"]),
    ],
)
def test_a_filter_shows_what_it_says(page, label, option, fits):
    page.get_by_label(label, exact=True).select_option(option)
    expected = [key for key, work in stored(page).items() if fits(work)]
    assert shown(page) == expected
    assert page.locator("form.ar-reading output").inner_text().startswith(f"{len(expected)} of ")


def test_filters_are_combined_and_topics_without_works_go(page):
    choose(page, Topic="pipeline", Priority="2")
    works = stored(page)
    assert {works[key]["topic"] for key in shown(page)} == {"pipeline"}
    assert page.locator("article section > h2:visible").all_inner_texts() == [
        "Start here",
        "Pipeline parallelism",
    ]
    page.get_by_role("button", name="Show all").click()
    assert shown(page) == list(works)


@pytest.mark.parametrize(
    "option, rank",
    [
        ("priority", lambda work: -work["priority"]),
        ("short", lambda work: work["minutes"]),
        ("new", lambda work: -(work["year"] or 0)),
    ],
)
def test_works_are_sorted_and_the_order_by_topic_comes_back(page, option, rank):
    works = stored(page)
    choose(page, Sort_by=option)
    assert shown(page) == sorted(works, key=lambda key: rank(works[key]))
    choose(page, Sort_by="")
    assert shown(page) == list(works)


def test_the_address_keeps_what_was_chosen(page, address, open_page):
    choose(page, Topic="serving", Sort_by="short")
    visit = open_page(page.evaluate("location.href"), PAGE)
    assert shown(visit.page) == shown(page) and len(shown(page)) > 5
    visit.page.close()


def test_a_link_to_a_hidden_work_shows_it(page):
    choose(page, Topic="serving")
    page.evaluate("location.hash = 'read-rajbhandari2020'")
    expect(page.locator("section:has(> #read-rajbhandari2020)")).to_be_in_viewport()


# ---- paths ----


def test_two_hours_give_a_path_that_fits_and_leads_to_its_works(page):
    choose(page, I_have="120")
    page.get_by_role("button", name="Pick a path").click()
    steps = page.locator(".ar-path li a").evaluate_all("all => all.map(one => one.hash.slice(6))")
    works = stored(page)
    assert steps and sum(works[key]["minutes"] for key in steps) <= 120
    for place, key in enumerate(steps):
        assert set(works[key]["needs"]) <= set(steps[:place])
    assert keys_of(downloaded(page, "BibTeX of the path")) == steps
    page.locator(".ar-path li a").first.click()
    expect(page.locator(f"section:has(> #read-{steps[0]})")).to_be_in_viewport()


def test_a_path_keeps_to_the_topic_but_for_what_its_works_need(page):
    choose(page, Topic="context", I_have="120")
    page.get_by_role("button", name="Pick a path").click()
    steps = page.locator(".ar-path li a").evaluate_all("all => all.map(one => one.hash.slice(6))")
    assert steps[:2] == ["milakov2018", "liu2023"]


def test_a_path_leaves_out_what_was_read(page):
    page.get_by_role("button", name="Pick a path").click()
    first = page.locator(".ar-path li a").first.inner_text()
    key = page.locator(".ar-path li a").first.evaluate("one => one.hash.slice(6)")
    page.locator(f"section:has(> #read-{key}) .ar-read input").check()
    page.get_by_role("button", name="Pick a path").click()
    assert first not in page.locator(".ar-path li a").all_inner_texts()


# ---- progress ----


def test_what_was_read_stays_in_this_browser(page):
    page.get_by_label("read: PyTorch Distributed: Experiences", exact=False).check()
    assert "1 of " in page.locator("form.ar-reading").inner_text()
    page.reload()
    assert page.locator(".ar-read input:checked").count() == 1
    choose(page, Progress="read")
    assert shown(page) == ["li2020"]
    choose(page, Progress="open")
    assert "li2020" not in shown(page) and len(shown(page)) == len(stored(page)) - 1
    page.get_by_role("button", name="Forget what I read").click()
    assert page.locator(".ar-read input:checked").count() == 0
    assert page.evaluate("localStorage.getItem('all-ranks-read')") is None


def test_a_browser_that_keeps_nothing_shows_the_list_all_the_same(browser, address):
    context = browser.new_context()
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('not allowed'); }});"
    )
    page = context.new_page()
    page.route("**/_static/scripts/**", lambda route: route.abort())  # the theme's own use of the store
    page.goto(address + PAGE)
    page.locator(".ar-read input").first.check()
    assert "1 of " in page.locator("form.ar-reading .ar-summary").last.inner_text()
    context.close()


# ---- export ----


def test_bibtex_of_what_is_shown_is_saved(page):
    choose(page, Topic="tensor")
    text = downloaded(page, "BibTeX of these")
    assert keys_of(text) == shown(page)
    assert "arXiv:1909.08053" in text


# ---- everywhere ----


def test_the_keyboard_reaches_and_moves_every_control(page):
    page.get_by_label("Topic", exact=True).focus()
    names = [
        "ar-reading-kind",
        "ar-reading-priority",
        "ar-reading-time",
        "ar-reading-chapter",
        "ar-reading-progress",
    ]
    for name in [*names, "ar-reading-sort", "ar-reading-hours"]:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == name
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".ar-path li").count() > 0
    page.locator(".ar-read input").first.focus()
    page.keyboard.press("Space")
    assert page.locator(".ar-read input").first.is_checked()
    page.locator(".ar-read input").nth(60).focus()
    before = page.evaluate("scrollY")
    page.keyboard.press("Space")
    assert page.locator(".ar-read input").nth(60).is_checked()
    assert page.evaluate("[scrollY, document.activeElement.type]") == [before, "checkbox"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_scripts_add_is_accessible_and_fits_a_phone(page, theme):
    if not AXE.exists():
        pytest.fail("axe-core is missing: run `npm ci`.", pytrace=False)
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 390, "height": 850})
    choose(page, Sort_by="priority", I_have="480")
    page.get_by_role("button", name="Pick a path").click()
    page.locator(".ar-read input").nth(1).check()
    page.evaluate(AXE.read_text())
    assert page.evaluate(FINDINGS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("width", [390, 1280])
def test_the_form_comes_without_moving_the_page(browser, address, width):
    context = browser.new_context(viewport={"width": width, "height": 850})
    context.add_init_script(
        "window.moved = 0; new PerformanceObserver(list => list.getEntries().forEach(one => "
        "{ window.moved += one.value; })).observe({type: 'layout-shift', buffered: true});"
    )
    page = context.new_page()
    page.goto(address + PAGE)
    page.wait_for_timeout(300)
    assert page.locator("form.ar-reading").count() == 1 and page.evaluate("moved") < 0.05
    context.close()


def test_the_list_works_from_a_disk(site, open_page):
    visit = open_page((site / PAGE).as_uri(), PAGE)
    page = visit.page
    choose(page, Topic="experts")
    assert {stored(page)[key]["topic"] for key in shown(page)} == {"experts"}
    assert keys_of(downloaded(page, "BibTeX of these")) == shown(page)
    assert visit.problems == []
    page.close()


@pytest.mark.stamped("page", "book/quick_reference")
@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_the_card_prints_on_one_page(address, open_page, paper):
    visit = open_page(address + CARD, CARD)
    printed = visit.page.pdf(format=paper)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    visit.page.close()
