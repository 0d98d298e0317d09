"""Every page can be read: its lines, in the dark, on a phone, by keyboard and on paper."""

from __future__ import annotations

import io
import re

import pytest
from built_book import FRAMES
from PIL import Image
from test_palette import PAPER, contrast, palette

CHAPTER = "notebooks/foundations/ranks.html"
LETTERS_A_LINE = """() => [...document.querySelectorAll(".bd-article section > p")]
  .filter(one => one.textContent.length > 200 && !one.querySelector(".katex"))
  .flatMap(one => {
    const lines = new Map(), range = document.createRange(), walker = document.createTreeWalker(one, 4);
    while (walker.nextNode()) {
      for (let i = 0; i < walker.currentNode.length; i++) {
        range.setStart(walker.currentNode, i);
        range.setEnd(walker.currentNode, i + 1);
        const box = range.getBoundingClientRect(), line = Math.round((box.top + box.bottom) / 16);
        lines.set(line, (lines.get(line) ?? 0) + 1);
      }
    }
    return [...lines.values()].slice(0, -1);
  })"""
SMALL_TARGETS = """() => [...document.querySelectorAll(
    ".bd-header-article button, .bd-article :is(button, select, .ar-more > summary), .prev-next-area a"
  )].filter(one => one.checkVisibility())
    .map(one => [one.className || one.tagName, one.getBoundingClientRect()])
    .filter(([, box]) => box.width < 44 || box.height < 44)
    .map(([name, box]) => `${name}: ${box.width} x ${box.height}`)"""
HIDDEN_ON_PAPER = (
    ".bd-sidebar",
    ".bd-header-article",
    ".prev-next-footer",
    ".copybtn",
    ".headerlink",
    ".toggle-button",
)


@pytest.fixture
def opened(address, open_page):
    """A function that opens a page of the book in a window of that width and theme."""
    visits = []

    def open_chapter(name=CHAPTER, width=1280, theme="light", media="screen"):
        visit = open_page(address + name)
        visits.append(visit)
        visit.page.set_viewport_size({"width": width, "height": 850})
        visit.page.emulate_media(color_scheme=theme, media=media)
        visit.page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")
        visit.page.evaluate(FRAMES)
        return visit.page

    yield open_chapter
    for visit in visits:
        visit.page.close()


def style(page, selector, *names, part=None):
    """Computed values of the first element that `selector` finds."""
    ask = "(one, [names, part]) => names.map(name => getComputedStyle(one, part)[name])"
    return page.locator(selector).first.evaluate(ask, [names, part])


def hexadecimal(colour: str) -> str:
    """A computed rgb() colour as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*map(int, re.findall(r"\d+", colour)[:3]))


def test_a_line_holds_sixty_to_eighty_letters(opened):
    counts = opened().evaluate(LETTERS_A_LINE)
    assert len(counts) > 10
    assert 60 <= sum(counts) / len(counts) <= 75 and max(counts) <= 80


def test_imports_wait_until_they_are_asked_for_by_key_or_by_their_address(opened):
    page = opened()
    cell = page.locator("#imports-cell")
    box = page.locator(".ar-imports", has=cell)
    assert box.count() == 1 and not cell.is_visible()
    box.locator("summary").press("Enter")
    assert "import torch" in cell.inner_text()
    linked = opened(f"{CHAPTER}#imports-cell")
    assert linked.locator("#imports-cell").is_visible()


def test_the_picture_that_opens_a_page_stands_before_the_claim_and_its_code_waits(opened):
    page = opened("notebooks/pipeline_parallel/gpipe.html")
    picture, claim = (
        page.locator(".tag_opening .ar-figure").bounding_box(),
        page.locator(".claim").bounding_box(),
    )
    assert page.locator("article h1").bounding_box()["y"] < picture["y"] < claim["y"]
    code = page.locator(".tag_opening .cell_input")
    assert not code.is_visible()
    page.locator(".tag_opening summary").press("Enter")
    assert "simulate(" in code.inner_text()


def test_what_goes_deeper_waits_until_it_is_asked_for_by_key_or_by_its_address(opened):
    deeper = "notebooks/combining/experts.html"
    page = opened(deeper)
    heading, cell = page.get_by_role("heading", name="Deeper: against torch"), page.locator("#kind-cell")
    assert heading.is_visible() and not cell.is_visible()
    page.locator(".ar-deeper", has=cell).locator("> summary").press("Enter")
    assert "assert" in cell.inner_text()
    assert opened(f"{deeper}#kind-cell").locator("#kind-cell").is_visible()


# ---- in the dark ----


def test_a_plot_has_the_paper_of_a_dark_page(opened):
    page = opened(theme="dark")
    plot = page.locator(".cell_output img").first
    plot.scroll_into_view_if_needed()
    plot.evaluate("one => one.decode()")
    pixels = Image.open(io.BytesIO(plot.screenshot())).convert("RGB")
    colours = sorted(pixels.getcolors(pixels.width * pixels.height), reverse=True)
    (count, paper), brightest = colours[0], max(sum(colour) for _, colour in colours)
    assert count > pixels.width * pixels.height / 2
    assert "#{:02x}{:02x}{:02x}".format(*paper) == PAPER["dark"]
    assert brightest > 3 * 200  # its lines and letters


def test_samples_stay_as_they_were_drawn_in_the_dark(opened):
    page = opened("notebooks/data_parallel/gradient_averaging.html", theme="dark")
    filters = page.locator(".cell_output img").evaluate_all(
        """all => all.map(one =>
            [one.alt.includes("small pictures"), getComputedStyle(one).filter.includes("invert")])"""
    )
    assert [True, False] in filters and [False, True] in filters
    assert all(samples != inverted for samples, inverted in filters)


# ---- on a phone ----


@pytest.mark.parametrize("name", [CHAPTER, "book/index.html"])
def test_what_a_thumb_touches_is_large_enough(opened, name):
    page = opened(name, width=390)
    assert page.evaluate(SMALL_TARGETS) == []
    header = page.locator(".bd-header-article").first
    assert header.evaluate("one => one.scrollWidth <= one.clientWidth")


def test_the_sections_of_a_page_are_one_touch_away_on_a_phone(opened):
    page = opened(width=390)
    button = page.get_by_role("button", name="Contents")
    assert page.locator(".secondary-toggle").inner_text().strip() == "Contents"
    button.click()
    drawer = page.locator("#pst-secondary-sidebar-modal")
    drawer.wait_for()
    sections = page.locator(".bd-article h2").evaluate_all(
        "all => all.map(one => one.firstChild.textContent)"
    )
    assert drawer.locator("a").all_inner_texts() == sections


def test_what_goes_on_beside_its_box_says_so(opened):
    page = opened("notebooks/pipeline_parallel/one_f_one_b.html", width=390)
    boxes = page.locator(".cell_output pre:visible")
    wide = boxes.evaluate_all("""all => all.map((one, at) => [one, at]).filter(
        ([one]) => one.scrollWidth > one.clientWidth + 1).map(([one, at]) => [
        at, one.tabIndex, getComputedStyle(one).backgroundImage.split("linear-gradient").length - 1])""")
    assert len(wide) > 1 and {tuple(two) for _, *two in wide} == {(0, 4)}, "columns of numbers"
    first = boxes.nth(wide[0][0])
    colours = {}
    for place in (0, 10_000):
        first.evaluate(f"one => {{ one.scrollLeft = {place}; }}")
        seen = Image.open(io.BytesIO(first.screenshot())).convert("RGB")
        colours[place] = [seen.getpixel((x, seen.height // 2 + 4)) for x in (3, seen.width - 3)]
    assert colours[0][0] == colours[10_000][1] != colours[0][1]  # a shadow on the right, then on the left


# ---- by keyboard ----


@pytest.mark.parametrize("width", [390, 1280])
def test_just_what_scrolls_is_a_stop_of_the_keyboard_and_stays_one_when_a_figure_changes(opened, width):
    page = opened("notebooks/pipeline_parallel/one_f_one_b.html", width=width)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.locator("figure.ar-explorer form").dispatch_event("pointerenter")
    page.locator("figure.ar-explorer.ar-live").wait_for()
    page.wait_for_timeout(400)  # the theme's script, which did this before, waited 300 ms
    page.evaluate(FRAMES)
    boxes = page.locator(".bd-article :is(pre, div.math, .pst-scrollable-table-container):visible")
    wrong = boxes.evaluate_all("""all => all.filter(one => (one.scrollWidth > one.clientWidth ? "0" : null)
        !== one.getAttribute("tabindex")).map(one => one.outerHTML)""")
    assert boxes.count() > 40 and wrong == []


def test_a_button_that_is_an_icon_says_what_it_does_to_eye_and_ear(opened):
    page = opened()
    icons = page.locator(".bd-header-article button:visible").filter(has_not_text=re.compile("[a-z]"))
    assert icons.count() >= 3
    assert icons.evaluate_all("all => all.filter(one => !one.title)") == []
    for name in ("Color mode", "Toggle primary sidebar"):
        assert page.locator(".bd-header-article").get_by_role("button", name=name).first.is_visible()


def test_the_skip_link_shows_itself_and_leads_to_the_text(opened):
    page = opened()
    page.keyboard.press("Tab")
    link = page.locator(".skip-link a")
    assert link.evaluate("one => one === document.activeElement")
    page.wait_for_function("document.querySelector('.skip-link a').getBoundingClientRect().top >= 0")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


@pytest.mark.parametrize("theme", PAPER)
def test_what_has_the_focus_is_seen(opened, theme):
    page = opened(theme=theme)
    accent = palette(theme)["accent"]
    assert contrast(accent, PAPER[theme]) >= 3
    unseen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        name, line, width, colour = page.evaluate("""() => {
            const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(document.activeElement);
            return [document.activeElement.outerHTML.slice(0, 90), outlineStyle, outlineWidth, outlineColor];
        }""")
        if line == "none" or float(width.removesuffix("px")) < 2 or hexadecimal(colour) != accent:
            unseen.append(name)
    assert unseen == []


# ---- on paper ----


@pytest.fixture
def paper(opened):
    """A chapter as it is printed while the screen is dark."""
    return opened(theme="dark", media="print")


def test_paper_is_light_even_from_a_dark_page(paper):
    for selector in (".bd-article section > p", ".bd-article pre", ".bd-article pre .k", ".bd-article h2"):
        (ink,) = style(paper, selector, "color")
        assert contrast(hexadecimal(ink), PAPER["light"]) >= 7, selector
    assert style(paper, ".cell_output img", "filter", "mixBlendMode") == ["none", "normal"]
    assert hexadecimal(style(paper, "body", "backgroundColor")[0]) == PAPER["light"]


def test_paper_holds_the_article_and_nothing_to_press(paper):
    for selector in HIDDEN_ON_PAPER:
        assert (
            paper.locator(selector).evaluate_all("all => all.filter(one => one.checkVisibility()).length")
            == 0
        ), selector
    assert paper.locator("h1").evaluate_all("all => all.filter(one => one.checkVisibility()).length") == 1


def test_solutions_are_printed(paper):
    hidden = paper.locator(".admonition.solution > *").evaluate_all(
        "all => all.filter(one => !one.checkVisibility() && one.tagName !== 'BUTTON').length"
    )
    assert paper.locator(".admonition.solution").count() > 0 and hidden == 0


def test_paper_says_where_a_link_to_elsewhere_leads(opened):
    page = opened("book/how_to_use.html", media="print")
    page.evaluate("""() => {
        const link = document.createElement("a");
        Object.assign(link, { href: "https://elsewhere.example/", id: "away" });
        document.querySelector(".bd-article section > p").append(link);
    }""")
    assert "https://elsewhere.example/" in style(page, "#away", "content", part="::after")[0]
    assert style(page, ".bd-article a[href^='#'], .bd-article a.internal", "content", part="::after") == [
        "none"
    ]
