"""Every page of the built book: self-contained, typeset, accessible, and fit for a phone."""

from __future__ import annotations

import gzip
import re
from urllib.parse import unquote, urlsplit

import pytest
from built_book import AXE, ROOT

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
OPEN_ALL = """() => {
  document.querySelectorAll(".toggle-hidden").forEach(box => box.classList.remove("toggle-hidden"));
  return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""
# Of the rules that nothing breaks, axe need not describe every element that it has looked at.
FINDINGS = """() => axe.run(document, {preload: false, resultTypes: ["violations"]}).then(result =>
  result.violations.map(rule => `${rule.id}: ${rule.help}\\n` +
    rule.nodes.map(node => `    ${node.html.slice(0, 200)}`).join("\\n")))"""


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
    pictures = visit.page.locator("article img[src*='_images/']").evaluate_all(
        "all => all.map(one => [one.loading, one.complete, one.naturalWidth, one.getAttribute('width')])"
    )
    assert all(found == ["lazy", True, found[2], str(found[2])] for found in pictures), pictures


def test_stored_figures_are_drawn(visit):
    figures = visit.page.locator("figure.ar-plotly")
    for index in range(figures.count()):
        figures.nth(index).scroll_into_view_if_needed()
        figures.nth(index).locator("svg.main-svg").first.wait_for()
        assert figures.nth(index).locator("[role=img]").get_attribute("aria-label")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_is_accessible(visit, theme, width):
    if not AXE.exists():
        pytest.fail("axe-core is missing: run `npm ci`.", pytrace=False)
    page = visit.page
    page.set_viewport_size({"width": width, "height": 850})
    page.emulate_media(color_scheme=theme)
    page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")
    page.evaluate("scrollTo(0, 0)")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    name = visit.name.removesuffix(".html").replace("/", "-")
    page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{theme}.jpg", full_page=True, quality=80)
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    page.evaluate(OPEN_ALL)
    assert page.evaluate(FINDINGS) == []


def test_fits_a_phone(visit):
    visit.page.set_viewport_size({"width": 390, "height": 850})
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
