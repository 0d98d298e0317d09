"""All explorers at a glance: thumbnails that lead to them, pictures to save, pages to embed, a light page."""

from __future__ import annotations

import gzip
import struct

import pytest
from built_book import AXE
from test_explorers_live import after, opened  # noqa: F401

from allranks import explorers

pytestmark = pytest.mark.stamped("explorers")
PAGE = "notebooks/reference/explorers.html"
LIGHT = 60_000  # bytes that the gallery may add to what the page loads


def test_every_explorer_has_a_thumbnail_that_leads_to_it(address, open_page):
    visit = open_page(address + PAGE)
    page = visit.page
    links = page.locator(".ar-gallery > a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert sorted(links) == sorted(f"#explorer-{name}" for name in explorers.NAMES)
    for image in page.locator(".ar-gallery img.only-light").all():
        image.scroll_into_view_if_needed()
        image.evaluate("one => one.decode()")
        assert image.evaluate("one => one.naturalWidth") == 720
    dark = [url for url in visit.requested if "/explorers/" in url and url.endswith("-dark.svg")]
    assert dark == [], "only the pictures of one theme are loaded"
    page.locator('.ar-gallery > a[href="#explorer-zero"]').click()
    page.wait_for_function(
        "Math.abs(document.querySelector('#explorer-zero').getBoundingClientRect().top) < 200"
    )
    assert visit.problems == []
    page.close()


def test_the_gallery_is_light(site):
    files = [*(site / "_static" / "explorers").glob("*-light.svg"), site / "_static" / "gallery.css"]
    assert len(files) == len(explorers.NAMES) + 1
    assert sum(len(gzip.compress(each.read_bytes(), 9)) for each in files) <= LIGHT


def test_thumbnails_are_files_without_colours_of_a_page(site):
    for theme in ("light", "dark"):
        for name in explorers.NAMES:
            drawn = (site / "_static" / "explorers" / f"{name}-{theme}.svg").read_text(encoding="utf-8")
            assert "var(" not in drawn and drawn.startswith("<svg")


def test_a_picture_is_saved_as_it_is_now(opened):  # noqa: F811
    page = opened("pipeline").page
    page.locator("[name=stages]").focus()
    after(page, lambda: page.keyboard.press("ArrowRight"))
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save SVG").click()
    assert saved.value.suggested_filename == "all-ranks-pipeline.svg"
    drawn = saved.value.path().read_text(encoding="utf-8")
    assert "var(" not in drawn and "rank 4" in drawn
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save PNG").click()
    head = saved.value.path().read_bytes()[:24]
    assert head.startswith(b"\x89PNG") and struct.unpack(">I", head[16:20]) == (1440,)
    page.close()


def test_an_explorer_is_embedded_by_its_own_page_with_its_settings(address, open_page):
    visit = open_page(f"{address}_static/explorers/zero.html#explorer-zero:stage=1")
    page = visit.page
    page.locator("figure.ar-live").wait_for()
    assert page.locator(".ar-words").inner_text() == explorers.draw("zero", {"stage": 1})["text"]
    assert visit.problems == [] and visit.foreign == []
    page.add_script_tag(path=AXE)
    faults = page.evaluate("async () => (await axe.run()).violations.map((one) => one.id)")
    assert faults == []
    page.close()
