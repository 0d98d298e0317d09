"""From a page to its notebook: the menu, the reader's hub, a hub that a link proposes, the citation."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from built_book import AXE, ROOT
from pybtex.database import parse_string

pytestmark = pytest.mark.stamped("opening")
PAGE = "notebooks/foundations/ranks.html"
HUB = "https://hub.example.edu"
STORED = "localStorage.getItem('all-ranks-hub')"
OURS = ".ar-open, .ar-cite, .ar-hub-question"
FINDINGS = f"""() => axe.run("{OURS}", {{preload: false, resultTypes: ["violations"]}}).then(result =>
  result.violations.map(rule =>
    rule.id + ": " + rule.nodes.map(node => node.html.slice(0, 200)).join("; ")))"""


@pytest.fixture
def chapter(address, open_page):
    visit = open_page(address + PAGE)
    yield visit.page
    assert visit.problems == [] and visit.foreign == []
    visit.page.close()


@pytest.fixture
def proposed(address, open_page):
    visit = open_page(f"{address}{PAGE}?hub={HUB}#ranks")
    yield visit.page
    assert visit.problems == [] and visit.foreign == []
    visit.page.close()


def set_hub(page, address):
    page.locator(".ar-open > summary").click()
    page.get_by_label("On your JupyterHub").fill(address)
    page.keyboard.press("Enter")


def hub_link(page):
    return page.get_by_role("link", name="On your hub")


def question(page):
    return page.get_by_role("region", name="A hub that the link proposes")


def test_without_scripts_the_notebook_the_source_and_the_citation_are_there(address, open_page):
    page = open_page(address + PAGE, java_script_enabled=False).page
    page.locator(".ar-open > summary").click()
    for name in (
        "Notebook, with its outputs", "On Binder", "In Colab", "On your own machine", "Show the source",
    ):  # fmt: skip
        assert page.get_by_role("link", name=name).is_visible()
    page.locator(".ar-cite > summary").click()
    assert "@misc{allranks:ranks" in page.locator(".ar-cite").inner_text()
    page.close()


def test_the_notebook_is_the_file_of_the_repository(chapter, site):
    link = chapter.locator(".ar-open a[download]")
    assert link.get_attribute("download") == "ranks.ipynb"
    stored = (site / PAGE).parent / link.get_attribute("href")
    assert stored.read_bytes() == (ROOT / PAGE.replace(".html", ".ipynb")).read_bytes()


@pytest.mark.stamped(None)
def test_a_hub_is_remembered_changed_and_forgotten(chapter):
    set_hub(chapter, "hub.example.edu/hub/home")
    chapter.reload()
    chapter.locator(".ar-open > summary").click()
    assert hub_link(chapter).get_attribute("href").startswith(f"{HUB}/hub/user-redirect/git-pull?repo=https")
    chapter.get_by_role("button", name="Change").click()
    chapter.get_by_label("On your JupyterHub").fill("https://other.example.edu")
    chapter.get_by_role("button", name="Set", exact=True).click()
    assert urlsplit(hub_link(chapter).get_attribute("href")).netloc == "other.example.edu"
    chapter.get_by_role("button", name="Forget").click()
    assert chapter.evaluate(STORED) is None and not hub_link(chapter).is_visible()


@pytest.mark.parametrize(
    ("given", "told"),
    [("http://hub.example.edu", "begins with https://"), ("hub example.edu", "is no address")],
)
def test_a_wrong_address_is_explained_and_not_kept(chapter, given, told):
    set_hub(chapter, given)
    assert told in chapter.locator("#ar-hub-problem[role=alert]").inner_text()
    assert chapter.get_by_label("On your JupyterHub").get_attribute("aria-invalid") == "true"
    assert chapter.evaluate(STORED) is None


def test_the_menu_closes_as_menus_do(chapter):
    summary, menu = chapter.locator(".ar-open > summary"), chapter.locator(".ar-open-menu")
    summary.focus()
    chapter.keyboard.press("Enter")
    assert menu.is_visible()
    chapter.keyboard.press("Tab")
    chapter.keyboard.press("Escape")
    assert menu.is_hidden() and summary.evaluate("one => one === document.activeElement")
    summary.click()
    chapter.locator("article h1").click(position={"x": 5, "y": 5})
    assert menu.is_hidden()


def test_a_proposed_hub_is_used_only_after_yes(proposed):
    assert HUB in question(proposed).inner_text()
    assert proposed.evaluate(STORED) is None and proposed.locator(f"a[href^='{HUB}']").count() == 0
    assert proposed.evaluate("location.search + location.hash") == "#ranks"
    proposed.get_by_role("button", name="Use this hub").click()
    assert proposed.evaluate(STORED) == HUB and hub_link(proposed).is_visible()
    assert not question(proposed).is_visible()


def test_a_refused_hub_leaves_nothing(proposed):
    proposed.get_by_role("button", name="No").click()
    assert proposed.evaluate(STORED) is None and not question(proposed).is_visible()


@pytest.mark.parametrize("given", ["javascript:alert(1)", "http://hub.example.edu", ""])
def test_a_proposal_that_is_no_hub_cannot_be_accepted(given, address, open_page):
    page = open_page(f"{address}{PAGE}?hub={given}").page
    assert "cannot be used" in question(page).inner_text()
    assert question(page).get_by_role("button").all_inner_texts() == ["Close"]
    page.close()


def test_a_browser_that_stores_nothing_says_so(chapter):
    chapter.evaluate("void (Storage.prototype.setItem = () => { throw new DOMException('full'); })")
    set_hub(chapter, HUB)
    assert hub_link(chapter).is_visible()
    assert "until you leave this page" in chapter.locator(".ar-open-hub").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_menu_question_and_citation_are_accessible_and_fit(width, theme, address, open_page):
    page = open_page(f"{address}{PAGE}?hub={HUB}").page
    page.set_viewport_size({"width": width, "height": 850})
    page.emulate_media(color_scheme=theme)
    page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")
    page.evaluate(AXE.read_text())
    page.evaluate("document.querySelectorAll('.ar-open, .ar-cite').forEach(one => { one.open = true; })")
    assert page.evaluate(FINDINGS) == []
    page.get_by_role("button", name="Use this hub").click()
    assert page.evaluate(FINDINGS) == []
    box = page.locator(".ar-open-menu").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_the_copied_link_proposes_the_hub(address, open_page):
    visit = open_page(address + PAGE, permissions=["clipboard-read", "clipboard-write"])
    set_hub(visit.page, HUB)
    visit.page.get_by_role("button", name="Copy a link for others").click()
    visit.page.get_by_role("button", name="Copied: it asks them first").wait_for()
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    assert copied == f"{address}{PAGE}?hub=https%3A%2F%2Fhub.example.edu"
    visit.page.close()


def test_the_citation_can_be_copied_and_read(address, open_page):
    visit = open_page(address + PAGE, permissions=["clipboard-read", "clipboard-write"])
    page = visit.page
    page.locator(".ar-cite > summary").click()
    page.locator(".ar-cite .highlight").nth(1).hover()
    page.locator(".ar-cite .copybtn").nth(1).click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text.startsWith('@misc'))")
    entry = parse_string(page.evaluate("navigator.clipboard.readText()"), "bibtex").entries["allranks:ranks"]
    assert entry.fields["url"].endswith(PAGE)
    assert entry.fields["url"] == page.locator("meta[name=citation_public_url]").get_attribute("content")
    page.close()
