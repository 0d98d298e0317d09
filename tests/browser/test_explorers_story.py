"""The frame of an explorer: its question, its result, and its story, told by buttons and by links."""

from __future__ import annotations

import re

import pytest
from test_explorers_live import (
    after,
    opened,  # noqa: F401
    page_of,
    settings_of,
    shows_what_python_says,
    stop_the_clock,
)

from allranks import explorers
from allranks.explorers.frame.controls import settings
from allranks.explorers.stories import STORIES
from allranks.explorers.stories.frames import frame

pytestmark = pytest.mark.stamped("explorers")
ALL = "notebooks/reference/explorers.html"


def insight(page):
    return page.locator(".ar-insight").inner_text()


def pressed(page):
    """The names of the steps that are shown as the present one."""
    return page.locator('.ar-story [aria-pressed="true"]').all_inner_texts()


@pytest.mark.parametrize("name", STORIES)
def test_each_step_is_told_by_the_keyboard_and_sets_the_controls(name, opened):  # noqa: F811
    page = opened(name).page
    for step in STORIES[name]:
        button = page.get_by_role("button", name=step.title, exact=True)
        button.focus()
        after(page, lambda: page.keyboard.press("Enter"))
        assert settings_of(page, name) == settings(explorers.explorer(name).CONTROLS, step.settings)
        shows_what_python_says(page, name)
        assert insight(page) == step.words and pressed(page) == [step.title]
    after(page, page.get_by_role("button", name="Reset").click)
    start = settings(explorers.explorer(name).CONTROLS, {})
    told = [step for step in STORIES[name] if settings_of_step(name, step) == start]
    assert pressed(page) == [step.title for step in told]
    assert insight(page) == (told[0].words if told else explorers.draw(name)["insight"])
    page.close()


def settings_of_step(name, step):
    return settings(explorers.explorer(name).CONTROLS, step.settings)


def test_a_control_that_is_moved_leaves_the_story_and_the_insight_is_computed(opened):  # noqa: F811
    page = opened("pipeline").page
    after(page, page.get_by_role("button", name="One micro-batch").click)
    page.locator("[name=microbatches]").focus()
    after(page, lambda: page.keyboard.press("ArrowRight"))
    given = settings_of(page, "pipeline")
    assert given["microbatches"] == 2 and pressed(page) == []
    assert insight(page) == explorers.draw("pipeline", given)["insight"]
    page.close()


@pytest.mark.parametrize("name", explorers.NAMES)
def test_the_page_asks_first_and_folds_all_but_three_controls(name, address, open_page):
    page = open_page(address + ALL).page
    figure = page.locator(f"#explorer-{name}")
    assert figure.locator(".ar-question").inner_text() == frame(name).question
    inputs, names = ".ar-control:visible :is(select, input)", "all => all.map(one => one.name)"
    assert tuple(figure.locator(inputs).evaluate_all(names)) == frame(name).primary
    figure.locator(".ar-more > summary").click()
    made = [control.name for control in explorers.explorer(name).CONTROLS]
    assert sorted(figure.locator(inputs).evaluate_all(names)) == sorted(made)
    page.close()


@pytest.mark.parametrize(
    "fragment",
    ["microbatches=%E0%A4%A", "microbatches=many", "schedule=nothing", "microbatches=65", "=,,=", "colour=1"],
)
def test_an_address_that_no_control_can_be_set_to_is_ignored(opened, fragment):  # noqa: F811
    visit = opened("pipeline", f"#explorer-pipeline:{fragment}")
    assert settings_of(visit.page, "pipeline") == settings(explorers.explorer("pipeline").CONTROLS, {})
    assert visit.page.locator(".ar-refusal:not(:empty)").count() == 0
    assert visit.problems == []
    visit.page.close()


def test_a_refusal_of_a_folded_control_is_in_sight(opened):  # noqa: F811
    page = opened("memory").page
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = false; })")
    page.evaluate("location.hash = '#explorer-memory:pipeline=64'")  # of 32 layers
    refusal = page.locator("#memory-pipeline-refusal:not(:empty)")
    refusal.wait_for()
    assert refusal.is_visible()
    page.close()


def test_a_voice_is_not_given_the_steps_that_are_played(opened):  # noqa: F811
    page = opened("zero").page
    stop_the_clock(page)
    page.get_by_role("button", name="Play", exact=True).click()
    assert page.locator("figcaption").get_attribute("aria-live") == "off"
    page.get_by_role("button", name="Pause").click()
    assert page.locator("figcaption").get_attribute("aria-live") == "polite"
    page.close()


def with_link(name, root):
    link = f'<p><a class="ar-set" href="#explorer-{name}" data-set="microbatches=32">with 32</a></p>'
    return page_of(name, root).replace("<main>", f"<main>{link}")


def test_a_link_in_the_text_sets_the_figure_again_and_again(site, tmp_path, open_page):
    (tmp_path / "linked.html").write_text(with_link("pipeline", site.as_uri()), encoding="utf-8")
    page = open_page((tmp_path / "linked.html").as_uri()).page
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    link = page.get_by_role("link", name="with 32")
    assert link.get_attribute("href") == "#explorer-pipeline:microbatches=32"
    for _ in range(2):
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_function("document.querySelector('.ar-words').textContent.includes('32 micro-batches')")
        assert page.evaluate("location.href").endswith("#explorer-pipeline:microbatches=32")
        assert settings_of(page, "pipeline")["microbatches"] == 32
        after(page, page.get_by_role("button", name="Reset").click)
    page.close()


def test_without_scripts_such_a_link_leads_to_the_figure(site, tmp_path, open_page):
    (tmp_path / "linked.html").write_text(with_link("pipeline", site.as_uri()), encoding="utf-8")
    page = open_page((tmp_path / "linked.html").as_uri(), java_script_enabled=False).page
    page.get_by_role("link", name="with 32").click()
    page.wait_for_url(lambda url: url.endswith("#explorer-pipeline"))
    assert page.locator(".ar-story").is_hidden() and page.locator(".ar-result").is_visible()
    page.close()


def test_on_paper_there_are_no_buttons(opened):  # noqa: F811
    page = opened("pipeline").page
    page.emulate_media(media="print")
    assert page.locator(".ar-story").is_hidden()
    for part in (".ar-question", ".ar-result", ".ar-insight", ".ar-words"):
        assert page.locator(part).is_visible()
    page.close()


@pytest.mark.stamped(None)
def test_links_of_the_chapters_set_figures_that_are_there(site):
    found = {}
    for path in site.glob("notebooks/**/*.html"):
        text = path.read_text(encoding="utf-8")
        for name, listed in re.findall(
            r'class="ar-set[^"]*" href="#explorer-(\w+)" data-set="([^"]*)"', text
        ):
            assert f'id="explorer-{name}"' in text, path.name
            found.setdefault(path.stem, []).append((name, listed))
    assert len(found) >= 6
