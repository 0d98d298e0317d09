"""The first page: its challenge is true, its figure waits for a hand, its map and list leave no page out."""

from __future__ import annotations

import re

import pytest
import yaml
from allranks_book import chapter_map, contents
from built_book import ROOT

from allranks import averaging, explorers
from allranks.averaging import POINTS
from allranks.explorers.averaging import START
from allranks.explorers.frame.controls import Choice, Integer, Scale, settings

FIRST_PAGE = "book/index.html"
TOO_LARGE = """all => all.filter(one => {
  const [words, box] = [one.querySelector("text").getBBox(), one.querySelector("rect").getBBox()];
  return words.width > box.width || words.height > box.height;
}).map(one => one.textContent)"""
ON_THE_MAP = {page.name for pages in contents.parts().values() for page in pages if page.at}


@pytest.fixture(scope="module")
def first_page(address, open_page):
    visit = open_page(address + FIRST_PAGE, java_script_enabled=True)
    yield visit
    visit.page.close()


@pytest.fixture
def start(first_page):
    """The settings at which the figure of the first page starts."""
    return first_page.page.evaluate(
        "JSON.parse(document.querySelector('#explorer-averaging script').textContent).start"
    )


def pages_of_the_book() -> list[str]:
    """Every page in a part of _toc.yml, those below another page too."""
    chapters = [
        each for part in yaml.safe_load((ROOT / "_toc.yml").read_text())["parts"] for each in part["chapters"]
    ]
    return [page["file"] for each in chapters for page in (each, *each.get("sections", ()))]


def linked(page, where: str) -> list[str]:
    """The pages that the links in a part of the first page lead to, in their order."""
    found = page.locator(where).evaluate_all(
        "all => all.map(one => new URL(one.getAttribute('href'), location.href).pathname)"
    )
    return [path.removeprefix("/").removesuffix(".html") for path in found]


def distance(given: dict) -> float:
    """How far the ranks end from one process, by the package."""
    sizes = averaging.split(len(POINTS), given["ranks"], given["extra"])
    ways = ((sizes, given["way"]), ([sum(sizes)], "mean"))
    path, alone = (averaging.descend(POINTS, *each, given["rate"], given["step"], START) for each in ways)
    return averaging.apart(path, alone)[-1]


def test_only_averaging_meets_the_challenge(start):
    """`The line of one process, in as many steps`: no other single control finds it."""
    controls = [
        each for each in explorers.explorer("averaging").CONTROLS if each.name not in ("lower", "step")
    ]
    assert start["ranks"] == 4 and distance(start) > 1
    meeting = set()
    for control in controls:
        if isinstance(control, (Choice, Scale)):
            values = [value for value, _ in control.options]
        else:
            assert isinstance(control, Integer)
            values = range(control.low, control.high + 1)
        meeting |= {control.name for value in values if distance({**start, control.name: value}) < 1e-9}
    assert meeting == {"way"}


def test_unequal_parts_need_weights(start):
    unequal = {**start, "extra": 6}
    assert distance({**unequal, "way": "mean"}) > 0.1
    assert distance({**unequal, "way": "weighted"}) < 1e-9


def test_the_map_holds_every_chapter_in_both_arrangements(first_page):
    for columns in (6, 2):
        found = linked(first_page.page, f'.ar-map svg[data-columns="{columns}"] a')
        assert len(found) == len(set(found)) and set(found) == ON_THE_MAP


def test_every_chapter_of_the_parts_on_parallelism_is_on_the_map():
    parts = contents.parts()
    on_the_map = {
        caption: all(page.at for page in pages if not page.name.endswith("/problems"))
        for caption, pages in parts.items()
    }
    without = [caption for caption, every in on_the_map.items() if not every]
    assert without == ["Start", "Labs", "Reference"]


def test_the_list_holds_every_page_in_the_order_of_the_book(first_page):
    assert linked(first_page.page, "section#the-chapters dl a") == pages_of_the_book()


def test_lines_lead_from_what_a_chapter_needs():
    pages = [page for pages in contents.parts().values() for page in pages if page.at]
    needs = contents.without_detours({page.name: page.needs for page in pages})
    drawn = chapter_map.drawing(pages, contents.cuts(), 6, 720, lambda page: page.name)
    groups = re.findall(r'<g class="ar-stop">(.*?)<a href="([^"]+)"', drawn)
    assert {name: arrows.count("ar-head") for arrows, name in groups} == {
        name: len(found) for name, found in needs.items()
    }
    assert sum(map(len, needs.values())) > 20


def test_a_need_that_another_need_has_is_not_drawn():
    assert contents.without_detours({"a": (), "b": ("a",), "c": ("a", "b")}) == {
        "a": [],
        "b": ["a"],
        "c": ["b"],
    }


@pytest.mark.parametrize("width, columns", [(1280, 6), (390, 2)])
def test_one_arrangement_is_shown_and_read_by_keyboard(first_page, width, columns):
    page = first_page.page
    page.set_viewport_size({"width": width, "height": 850})
    shown = page.locator(".ar-map svg:visible")
    assert shown.count() == 1 and shown.get_attribute("data-columns") == str(columns)
    size = shown.evaluate("one => 12 * one.getBoundingClientRect().width / one.viewBox.baseVal.width")
    assert size >= 11  # pixels of its letters
    links = shown.locator("a")
    links.first.focus()
    names = []
    for _ in range(links.count()):
        names.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        page.keyboard.press("Tab")
    assert names == links.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    assert links.evaluate_all(TOO_LARGE) == []


def test_the_figure_loads_its_python_when_it_is_touched(address, open_page):
    visit = open_page(address + FIRST_PAGE)
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 850})  # a phone that is turned asks for none either
    page.wait_for_timeout(300)
    page.set_viewport_size({"width": 1280, "height": 850})
    assert [url for url in visit.requested if "_static/explorers/" in url] == []
    before = page.locator("#explorer-averaging .ar-words").inner_text()
    chosen = settings(explorers.explorer("averaging").CONTROLS, {"way": "none", "step": 12})
    assert before == explorers.draw("averaging", chosen)["text"]
    page.locator("#explorer-averaging [name=extra]").press("End")
    page.locator("figure.ar-live").wait_for()
    page.wait_for_function(
        "text => document.querySelector('#explorer-averaging .ar-words').textContent !== text", arg=before
    )
    expected = explorers.draw("averaging", {**chosen, "extra": 7})["text"]
    assert page.locator("#explorer-averaging .ar-words").inner_text() == expected
    page.close()


def test_the_first_page_is_whole_without_javascript(address, open_page):
    page = open_page(address + FIRST_PAGE, java_script_enabled=False).page
    assert page.locator("#explorer-averaging svg:visible").count() == 1
    assert page.locator("#explorer-averaging form").is_hidden()
    assert page.locator(".ar-map svg:visible a").count() == len(ON_THE_MAP)
    page.close()
