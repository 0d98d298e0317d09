"""Every page of the built book: self-contained, typeset, accessible, and fit for a phone."""

from __future__ import annotations

import gzip
import re
from urllib.parse import unquote, urlsplit

import pytest
from built_book import AXE, ROOT
from stamps import SAMPLE

pytestmark = pytest.mark.stamped("page")  # but for pages of SAMPLE, which are looked at always

CONTRAST = ROOT / "tests" / "browser" / "contrast.js"
SCREENSHOTS = ROOT / "_build" / "screenshots"
FIRST_LOAD_KB = 250
WITH_EXPLORERS_KB = 540  # the page of all ten explorers, read to its end; the others stay below 500
WITH_PLOTLY_KB = 850
MOST_SHIFT = 0.1
LATE = re.compile("vendor/plotly|_static/explorers/")  # loaded when a figure that needs them is near
COMPRESSED_ALREADY = (".woff", ".woff2", ".png", ".jpg")
SHIFTS = """() => new Promise(done => {
  new PerformanceObserver(list => done(list.getEntries())).observe({type: "layout-shift", buffered: true});
  setTimeout(done, 100, []);
}).then(shifts => shifts.map(shift =>
  [shift.value, shift.sources.map(source => source.node?.outerHTML?.slice(0, 100)).join(" and ")]))"""
RAW_MATH = r"""() => {
  const found = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    if (text.parentElement.closest("pre, code, script, style, .katex")) continue;
    if (/\$[^$\d\s][^$]*\$|\\\(|\\\[|\\begin\{/.test(text.data)) found.push(text.data.trim());
  }
  return found;
}"""
SCROLLING_CODE = """() => [...document.querySelectorAll(".bd-article .cell_input pre")]
  .filter(code => code.scrollWidth > code.clientWidth + 1).map(code => code.textContent.slice(0, 80))"""
OPEN_ALL = """() => {
  document.querySelectorAll(".toggle-hidden").forEach(box => box.classList.remove("toggle-hidden"));
  document.querySelectorAll("details.ar-deeper").forEach(section => section.setAttribute("open", ""));
  return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""
FOLD = "open => document.querySelectorAll('details.ar-deeper').forEach(one => { one.open = open; })"
# Goes through all slides and back by keys that land where the focus is. Counts, for every text, picture and
# control that the page shows, on how many slides it is seen.
WALK = """() => {
  const article = document.querySelector("article.bd-article");
  const press = key => document.activeElement.dispatchEvent(
    new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
  const all = "p, pre, li, h1, h2, h3, td, img, svg, summary, label, div.math";
  const setByReaders = ".ar-ranks > :not(.ar-space, figcaption, .ar-message-steps)"; // of a program
  const leaves = [...article.querySelectorAll(`section :is(${all})`)]
    .filter(one => one.checkVisibility() && !one.closest(setByReaders));
  const kept = [...article.firstElementChild.querySelectorAll("*")];
  press("p");
  const status = document.querySelector(".ar-lecture-bar [role=status]");
  const number = () => Number(status.textContent.split(" / ")[0]);
  press("Home");
  const seen = new Map(leaves.map(one => [one, 0]));
  const forth = [], back = [], wide = [], tall = [], spoilt = [], small = [];
  const size = one => one ? parseFloat(getComputedStyle(one).fontSize) : Infinity;
  for (let presses = 0; presses < 1000; presses += 1) {
    const n = number();
    if (forth.at(-1) !== n) {
      forth.push(n);
      const shown = leaves.filter(one => one.checkVisibility());
      shown.forEach(one => seen.set(one, seen.get(one) + 1));
      if (article.scrollWidth > article.clientWidth) wide.push(n);
      const code = shown.filter(one => one.matches(".cell_input pre"));
      if (code.some(one => one.scrollWidth > one.clientWidth + 1)) wide.push(n);
      if (article.scrollHeight > article.clientHeight + 2) tall.push(n);
      const box = shown.findIndex(one => one.closest(".predict"));
      if (box >= 0 && shown.slice(box).some(one => !one.closest(".predict"))) spoilt.push(n);
      if (size(shown.find(one => one.matches("p:not(.admonition-title, table p)"))) < 22.9) small.push(n);
      if (size(code[0]) < 17.5) small.push(n);
    }
    const scrolled = article.scrollTop;
    press("PageDown");
    if (number() === n && article.scrollTop === scrolled) break;
  }
  do { back.push(number()); press("PageUp"); } while (number() !== back.at(-1));
  const moved = kept.filter((one, at) => article.firstElementChild.querySelectorAll("*")[at] !== one).length;
  const total = Number(status.textContent.split(" / ")[1]);
  press("Escape");
  return {total, forth, back, wide, tall, spoilt, small, moved,
          odd: [...seen].filter(([, times]) => times !== 1).map(([one, n]) => `${n}: ${one.outerHTML}`)};
}"""
# Of the rules that nothing breaks, axe need not describe every element that it has looked at.
FINDINGS = """(rules) => axe.run(document, {
  preload: false,
  resultTypes: ["violations"],
  rules: {"color-contrast": {enabled: false}},
  ...(rules && {runOnly: {type: "rule", values: rules}}),
}).then(result => result.violations.map(rule => `${rule.id}: ${rule.help}\\n` +
  rule.nodes.map(node => `    ${node.html.slice(0, 200)}`).join("\\n")))"""
# All of axe's rules once; again only what the colours, or the width, can change. Contrast is contrast.js's.
VIEWS = {
    (1280, "light"): None,
    (1280, "dark"): ["link-in-text-block"],
    (390, "light"): ["target-size", "scrollable-region-focusable"],
}
AT_ONCE = "*, *::before, *::after { transition: none !important }"  # or colours take a while to change


def test_asks_no_other_host(visit):
    assert visit.foreign == []


def test_logs_no_error(visit):
    assert visit.problems == []


def transferred(site, urls) -> int:
    """Bytes that a host which gzips sends for these addresses."""
    files = {site / unquote(urlsplit(url).path).lstrip("/") for url in urls}
    contents = {file: file.read_bytes() for file in files if file.is_file()}
    return sum(
        len(content if file.suffix in COMPRESSED_ALREADY else gzip.compress(content))
        for file, content in contents.items()
    )


def test_shows_after_little_and_loads_little_in_all(visit, site):
    at_once = [url for url in visit.requested if not LATE.search(url)]
    assert transferred(site, at_once) <= FIRST_LOAD_KB * 1000
    drawn_by_plotly = any("vendor/plotly" in url for url in visit.requested)
    most = WITH_PLOTLY_KB if drawn_by_plotly else WITH_EXPLORERS_KB
    assert transferred(site, visit.requested) <= most * 1000


def test_keeps_still_while_it_loads(visit):
    shifts = visit.page.evaluate(SHIFTS)
    assert sum(value for value, _ in shifts) <= MOST_SHIFT, shifts


def test_describes_itself(visit):
    if visit.name == "search.html":
        return
    assert visit.page.locator('meta[name="description"]').get_attribute("content")


def test_math_is_typeset(visit):
    assert visit.page.evaluate(RAW_MATH) == []
    assert visit.page.locator(".math:not(:has(.katex)), .katex-error").count() == 0


def test_pictures_say_what_they_show(visit):
    silent = "article :is(img:not([alt]), img[alt=''], svg[role=img]:not([aria-labelledby], [aria-label]))"
    assert visit.page.locator(silent).evaluate_all("all => all.map(one => one.outerHTML)") == []


def test_pictures_say_their_size_and_are_there_when_they_are_near(visit):
    visit.page.evaluate(FOLD, True)
    for picture in visit.page.locator("article img[src*='_images/']").all():
        assert picture.get_attribute("loading") == "lazy"
        picture.scroll_into_view_if_needed()
        visit.page.wait_for_function("one => one.complete", arg=picture.element_handle())
        width = picture.evaluate("one => one.naturalWidth")
        assert width > 0
        assert picture.get_attribute("width") == str(width)
    visit.page.evaluate(FOLD, False)


def test_stored_figures_are_drawn(visit):
    figures = visit.page.locator("figure.ar-plotly")
    visit.page.evaluate(FOLD, True)  # a figure may stand in a section that goes deeper
    for index in range(figures.count()):
        figures.nth(index).scroll_into_view_if_needed()
        figures.nth(index).locator("svg.main-svg").first.wait_for()
        assert figures.nth(index).locator("[role=img]").get_attribute("aria-label")
    visit.page.evaluate(FOLD, False)


def test_is_walked_through_as_a_lecture(visit):
    page = visit.page
    if not visit.name.startswith("notebooks/") or page.locator("article section").count() < 2:
        return
    page.set_viewport_size({"width": 1280, "height": 720})
    walked = page.evaluate(WALK)
    every = list(range(1, walked["total"] + 1))
    assert len(every) >= 2
    assert walked["forth"] == every
    assert walked["back"] == every[::-1]
    assert walked["odd"] == []
    assert walked["moved"] == 0
    assert walked["wide"] == []
    assert walked["spoilt"] == [], "a prediction and what comes after it are on one slide"
    assert walked["small"] == []
    assert len(walked["tall"]) <= 2, "at most two pieces of a chapter are too tall for a slide"
    assert visit.problems == []


@pytest.mark.parametrize("width, theme", VIEWS)
def test_is_accessible(visit, width, theme, request):
    if not AXE.exists():
        pytest.fail("axe-core is missing: run `npm ci`.", pytrace=False)
    page = visit.page
    page.set_viewport_size({"width": width, "height": 850})
    page.emulate_media(color_scheme=theme)
    page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")
    page.evaluate("scrollTo(0, 0)")
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
        page.add_style_tag(content=AT_ONCE)
    page.evaluate(OPEN_ALL)
    found = page.evaluate(FINDINGS, VIEWS[width, theme])
    if width == 1280:  # a narrow page has the same colours
        contrast = page.evaluate(CONTRAST.read_text())
        assert contrast["measured"] > 5
        found += contrast["complaints"]
    if found or visit.name in SAMPLE or request.config.getoption("screenshots"):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        name = visit.name.removesuffix(".html").replace("/", "-")
        page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{theme}.jpg", full_page=True, quality=80)
    assert found == []


def test_fits_a_phone(visit):
    visit.page.set_viewport_size({"width": 390, "height": 850})
    visit.page.wait_for_function("document.documentElement.scrollWidth <= 390")  # figures are drawn anew
    assert visit.page.evaluate(SCROLLING_CODE) == [], "these lines of code are read only sideways"
