"""Lecture mode: a chapter's own nodes as slides, by keyboard, and no trace of it afterwards.

That every chapter can be walked through is a test of the page: test_pages.py.
"""

from __future__ import annotations

import re

import pypdfium2
import pytest
from built_book import AXE, FRAMES, SITE
from playwright.sync_api import expect
from test_pages import FINDINGS

pytestmark = pytest.mark.stamped("lecture")
STAGE = {"width": 1280, "height": 720}
RANKS = "notebooks/foundations/ranks.html"
PIPELINE = "notebooks/pipeline_parallel/one_f_one_b.html"
STATUS = ".ar-lecture-bar [role=status]"
NOTES = ".ar-lecture-notes"
TERM = 'article p > a[href*="glossary.html#term-"]:not(.ar-whole)'

GO_TO = """selector => {
  const press = key => document.activeElement.dispatchEvent(
    new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
  press("Home");
  for (let presses = 0; !document.querySelector(selector).checkVisibility(); presses += 1) {
    if (presses > 300) throw new Error(`no slide shows ${selector}`);
    press("ArrowRight");
  }
}"""


@pytest.fixture
def at_stage(address, open_page):
    """A function that opens a page on a screen of 1280 × 720; what it opened is closed afterwards."""
    opened = []

    def open_at_stage(path, **options):
        visit = open_page(address + path, path, **options)
        if not options:
            visit.page.set_viewport_size(STAGE)
        opened.append(visit.page)
        return visit

    yield open_at_stage
    for page in opened:
        page.close()


def at(page):
    """The number of the slide that is shown."""
    return int(page.locator(STATUS).inner_text().split(" / ")[0])


def go_to(page, selector):
    """Press keys, where the focus is, until the slide shows `selector`."""
    page.evaluate(GO_TO, selector)


# ---- no trace ----

# Without the theme's marks of where a reader has scrolled to.
WHOLE = """() => {
  const page = document.documentElement.cloneNode(true);
  page.querySelectorAll("#pst-page-toc-nav, #pst-back-to-top, .ar-drawing").forEach(one => one.remove());
  page.querySelector("body").classList.toggle("scrolled", true);
  // scrollable.js sets these anew whenever a size changes: the lecture opens what is folded.
  for (const one of page.querySelectorAll(":is(pre, .pst-scrollable-table-container)[tabindex]")) {
    const set = one.getAttribute("tabindex");
    one.removeAttribute("tabindex");
    if (set === "0" && !one.closest("details")) one.setAttribute("tabindex", set);
  }
  return {html: page.outerHTML.split(/(?=<)/), title: document.title, hash: location.hash, scroll: scrollY,
          side: document.querySelector("#pst-primary-sidebar").scrollTop,
          focus: document.activeElement.cloneNode().outerHTML.replace(' class="scrolled"', "")};
}"""


@pytest.mark.parametrize("path", [RANKS, PIPELINE])
def test_leaves_no_trace(address, open_page, path):
    page = open_page(f"{address}{path}#exercises").page
    page.locator(".prev-next-footer a, article a").first.focus()
    page.evaluate("scrollTo(0, 1500)")
    page.wait_for_timeout(400)
    page.evaluate(FRAMES)
    before = page.evaluate(WHOLE)
    page.keyboard.press("p")
    for key in ("PageDown", "n", "t", "?", "?", "b", "b", "End", "Home"):
        page.keyboard.press(key)
    assert page.evaluate(WHOLE)["html"] != before["html"]
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    page.keyboard.press("Escape")
    page.evaluate("scrollTo(0, 1500)")
    page.wait_for_timeout(400)
    page.evaluate(FRAMES)
    after = page.evaluate(WHOLE)
    assert set(after["html"]) ^ set(before["html"]) == set()
    assert after == before
    page.close()


def test_unmoved_it_returns_to_the_very_place(at_stage):
    page = at_stage(RANKS).page
    page.evaluate("scrollTo(0, 2222)")
    page.keyboard.press("p")
    page.keyboard.press("Escape")
    assert page.evaluate("scrollY") == 2222


def test_moved_it_returns_to_the_section_shown_last(at_stage):
    page = at_stage(RANKS).page
    page.keyboard.press("p")
    go_to(page, "#groups > h2")
    page.keyboard.press("Escape")
    assert 40 <= page.evaluate("document.querySelector('#groups > h2').getBoundingClientRect().top") <= 200


def test_readers_get_the_button_with_the_page_and_the_scripts_after_it(site):
    source = (site / RANKS).read_text(encoding="utf-8")
    assert source.count("btn-lecture-button") == 1
    assert re.findall(r"<script([^>]*)lecture\w*\.js", source) == [' defer="defer" src="../../_static/'] * 2


def test_without_scripts_there_is_no_button(at_stage):
    page = at_stage(RANKS, java_script_enabled=False).page
    assert page.locator(".btn-lecture-button").count() == 1
    assert not page.locator(".btn-lecture-button").is_visible()


# ---- keys, address, notes, clock ----


@pytest.mark.stamped(None)
def test_the_button_opens_it_and_escape_returns_to_the_button(at_stage):
    page = at_stage(RANKS).page
    page.locator(".btn-lecture-button").click()
    assert at(page) == 1
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('.btn-lecture-button')")


def test_escape_closes_the_card_of_a_term_before_the_lecture(at_stage):
    page = at_stage(RANKS).page
    page.keyboard.press("p")
    go_to(page, TERM)
    page.locator(TERM).first.hover()
    page.locator("#ar-card-of").wait_for()
    page.keyboard.press("Escape")
    expect(page.locator("#ar-card-of")).to_be_hidden()
    assert page.locator(".ar-lecture-bar").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")  # the first of the two may leave a control
    assert page.locator(".ar-lecture-bar").count() == 0


@pytest.mark.parametrize(
    "name",
    ["pipeline", "memory", "goodput", "serving", "tensor_parallel", "layout", "roofline", "strategies"],
)
def test_on_a_slide_the_picture_takes_most_of_the_screen(at_stage, name):
    page = at_stage("notebooks/reference/explorers.html").page
    page.locator(".btn-lecture-button").click()
    go_to(page, f"#explorer-{name}")
    figure = page.locator(f"#explorer-{name}")
    box = figure.locator(".ar-wide").bounding_box()
    assert box["width"] > STAGE["width"] * 0.5 and box["height"] > STAGE["height"] * 0.55
    for part in (".ar-question", ".ar-result", ".ar-story", ".ar-insight", ".ar-actions"):
        part = figure.locator(part).bounding_box()
        assert part["x"] + part["width"] <= box["x"] and part["y"] + part["height"] < STAGE["height"]


def test_an_explorer_answers_on_its_slide_and_keeps_its_keys(at_stage):
    page = at_stage(PIPELINE).page
    page.keyboard.press("p")
    go_to(page, ".ar-explorer")
    shown = at(page)
    ranks = page.locator(".ar-explorer input[name=stages]")
    ranks.focus()
    words = page.locator(".ar-explorer .ar-words").inner_text()
    picture = page.locator(".ar-wide").inner_html()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".ar-explorer .ar-words")).not_to_have_text(words)
    assert page.locator(".ar-wide").inner_html() != picture
    assert at(page) == shown
    assert re.search(rf"#explorer-pipeline:stages=5;slide-{shown}-", page.evaluate("location.href"))
    page.keyboard.press("Escape")
    page.keyboard.press("PageDown")
    assert at(page) == shown + 1
    page.keyboard.press("PageUp")
    page.reload()
    expect(page.locator(STATUS)).to_contain_text(f"{shown} / ")
    expect(page.locator(".ar-explorer input[name=stages]")).to_have_value("5")
    page.keyboard.press("Escape")
    assert page.evaluate("location.href").endswith("#explorer-pipeline:stages=5")


def test_a_link_opens_the_slide(at_stage):
    page = at_stage(RANKS + "#slide-6-nothing-is-shared").page
    expect(page.locator("#nothing-is-shared > h2")).to_be_visible()
    number = at(page)
    page.keyboard.press("ArrowRight")
    assert f"#slide-{number + 1}-nothing-is-shared" in page.evaluate("location.href")
    page.evaluate("location.hash = '#slide-9999-groups'")
    expect(page.locator("#groups > h2")).to_be_visible()
    page.keyboard.press("Escape")
    assert "#" not in page.evaluate("location.href")


def test_notes_and_clock_stand_beside_the_slide(at_stage):
    page = at_stage(RANKS).page
    page.keyboard.press("p")
    go_to(page, "#one-function-four-processes > h2")
    page.keyboard.press("n")
    expect(page.locator(NOTES)).to_contain_text("4 minutes")
    expect(page.locator(NOTES)).to_contain_text("0:00 in all")
    page.clock.install(time=0)
    page.clock.pause_at(3600)
    page.keyboard.press("t")
    page.clock.run_for(1000)
    expect(page.locator(".ar-lecture-clock")).to_have_text("0:01")
    expect(page.locator(NOTES)).to_contain_text("0:01 in all, 0:01 in this section")
    page.keyboard.press("t")
    page.keyboard.press("r")
    expect(page.locator(".ar-lecture-clock")).to_have_text("0:00")
    go_to(page, "#nothing-is-shared > h2")
    expect(page.locator(NOTES)).to_contain_text("From the end of A broadcast in few rounds")
    page.keyboard.press("n")
    expect(page.locator(NOTES)).to_be_hidden()


def test_help_lists_every_key(at_stage):
    page = at_stage(RANKS).page
    page.keyboard.press("p")
    page.keyboard.press("?")
    assert page.locator(".ar-lecture-help tr").count() == 11
    expect(page.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("PageDown")
    assert at(page) == 1
    page.keyboard.press("Escape")
    expect(page.locator(".ar-lecture-help")).to_be_hidden()
    page.keyboard.press("PageDown")
    assert at(page) == 2


def test_keys_of_one_letter_can_be_switched_off_and_stay_off(at_stage):
    page = at_stage(RANKS).page
    page.keyboard.press("p")
    page.keyboard.press("?")
    letters = page.get_by_role("checkbox", name="Letters and signs are keys")
    letters.uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page.locator(NOTES)).to_be_hidden()
    page.get_by_role("button", name="Notes").click()
    expect(page.locator(NOTES)).to_be_visible()
    page.keyboard.press("PageDown")
    assert at(page) == 2
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("p")
    expect(page.locator(STATUS)).to_have_count(0)
    page.locator(".btn-lecture-button").click()
    page.get_by_role("button", name="Keys (?)").click()
    letters.check()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page.locator(NOTES)).to_be_visible()


def test_a_swipe_turns_the_slide(at_stage):
    page = at_stage(RANKS, has_touch=True).page
    page.set_viewport_size({"width": 390, "height": 844})
    page.keyboard.press("p")
    swipe = """([from, to]) => { for (const [type, x] of [["touchstart", from], ["touchend", to]]) {
      const target = document.querySelector("article h1");
      const touch = new Touch({identifier: 1, target, clientX: x, clientY: 300});
      target.dispatchEvent(new TouchEvent(type,
        {bubbles: true, touches: type === "touchend" ? [] : [touch], changedTouches: [touch]}));
    } }"""
    page.evaluate(swipe, [300, 100])
    assert at(page) == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate(swipe, [300, 290])
    assert at(page) == 2
    page.evaluate(swipe, [100, 300])
    assert at(page) == 1


# ---- paper, disk, accessibility ----


def test_prints_a_handout(at_stage):
    page = at_stage(RANKS).page
    page.keyboard.press("p")
    with pypdfium2.PdfDocument(page.pdf(format="A4")) as document:
        texts = [sheet.get_textpage().get_text_range() for sheet in document]
    text = " ".join(" ".join(texts).split())
    assert 5 <= len(texts) <= 30
    assert "Each of four ranks makes a tensor of three elements" in text
    assert "Three ways to fail" in text
    assert "Search this book" not in text


def test_works_from_a_disk(browser):
    context = browser.new_context(viewport=STAGE)
    page = context.new_page()
    page.goto((SITE / RANKS).as_uri())
    page.keyboard.press("p")
    page.keyboard.press("PageDown")
    assert page.evaluate("location.href").endswith("#slide-2-ranks")
    page.keyboard.press("Escape")
    assert "#" not in page.evaluate("location.href")
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_is_accessible(at_stage, theme):
    page = at_stage(RANKS).page
    page.emulate_media(color_scheme=theme)
    page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")
    page.evaluate(AXE.read_text())
    page.keyboard.press("p")
    page.keyboard.press("n")
    for selector in ("h1", ".solution"):
        go_to(page, selector)
        assert page.evaluate(FINDINGS) == []
    page.keyboard.press("?")
    assert page.evaluate(FINDINGS) == []
    page.keyboard.press("?")
    assert page.evaluate(FINDINGS) == []
