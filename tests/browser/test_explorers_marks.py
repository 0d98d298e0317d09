"""Marks in a picture answer to the mouse and to the keyboard, and light what belongs together."""

from __future__ import annotations

import pytest
from test_explorers_live import SEVERAL_STEPS, after, opened, settings_of, shows_what_python_says  # noqa: F401

from allranks import explorers

pytestmark = pytest.mark.stamped("explorers")
MARKS = ".ar-wide .ar-marks > *"


def set_by(mark):
    """What a mark sets: {name: value as an address says it}; of one that only says something, nothing."""
    listed = mark.get_attribute("data-set")
    return dict(part.split("=") for part in listed.split(",")) if listed else {}


def is_set(now, listed):
    return all(now[key] == value or str(now[key]).lower() == value for key, value in listed.items())


def first_that_changes(page, name):
    """The first mark that sets something else than the controls show, and what it sets."""
    now = settings_of(page, name)
    for mark in page.locator(MARKS).all():
        if not is_set(now, set_by(mark)):
            return mark, set_by(mark)
    raise AssertionError("no mark changes anything")


@pytest.mark.parametrize("name", explorers.NAMES)
def test_a_mark_that_is_clicked_sets_a_control(name, opened):  # noqa: F811
    page = opened(name, given=SEVERAL_STEPS.get(name)).page
    mark, listed = first_that_changes(page, name)
    after(page, lambda: mark.click(force=True))
    now = settings_of(page, name)
    assert is_set(now, listed)
    shows_what_python_says(page, name)
    assert f"#explorer-{name}:" in page.evaluate("location.hash")
    page.close()


@pytest.mark.parametrize("name", explorers.NAMES)
def test_the_picture_is_one_stop_of_the_keyboard_and_arrows_go_from_mark_to_mark(name, opened):  # noqa: F811
    page = opened(name).page
    assert page.locator(f'{MARKS}[tabindex="0"]').count() == 1
    page.locator(f'{MARKS}[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    second = page.locator(MARKS).nth(1)
    assert second.evaluate("one => one === document.activeElement")
    listed = set_by(second)
    after(page, lambda: page.keyboard.press("Enter"))
    now = settings_of(page, name)
    assert is_set(now, listed)
    shows_what_python_says(page, name)
    assert page.locator(MARKS).nth(1).evaluate("one => one === document.activeElement"), "focus stays"
    page.close()


def test_a_mark_under_the_pointer_lights_what_belongs_to_it(opened):  # noqa: F811
    page = opened("experts").page
    expert = page.locator(f'{MARKS}[data-light="e2"]')
    expert.hover(force=True)
    lit = page.locator(".ar-wide .ar-lit").evaluate_all("all => all.map(one => one.dataset.light)")
    assert lit == ["r0 e2", "r1 e2", "r2 e2", "r3 e2", "e2"]
    page.mouse.move(1, 1)
    assert page.locator(".ar-lit").count() == 0
    page.close()


@pytest.mark.parametrize("name", ["mesh", "serving"])
def test_what_a_mark_is_stands_beside_it_under_pointer_and_focus(name, opened):  # noqa: F811
    page = opened(name).page
    told, mark = page.locator(".ar-wide .ar-chip"), page.locator(MARKS).nth(3)
    mark.hover(force=True)
    assert told.inner_text() == mark.get_attribute("aria-label")
    inside, chip, at = (one.bounding_box() for one in (page.locator(".ar-wide"), told, mark))
    assert chip["x"] >= inside["x"] - 1 and chip["x"] + chip["width"] <= inside["x"] + inside["width"] + 1
    above, below = at["y"] - chip["y"] - chip["height"], chip["y"] - at["y"] - at["height"]
    assert 0 <= max(above, below) < 12, "it does not cover what it tells of"
    page.mouse.move(1, 1)
    assert told.is_hidden()
    page.locator(f'{MARKS}[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    assert told.inner_text() == page.locator(MARKS).nth(1).get_attribute("aria-label")
    page.close()


def test_marks_answer_before_python_is_there_and_are_gone_on_paper(opened):  # noqa: F811
    page = opened("zero").page
    assert page.locator(".ar-wide .ar-marks").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".ar-wide .ar-marks").is_hidden()
    page.close()


def test_without_scripts_there_are_no_marks(opened):  # noqa: F811
    page = opened("zero", java_script_enabled=False).page
    assert page.locator(".ar-marks").count() == 0
    page.close()
