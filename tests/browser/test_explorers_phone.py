"""On a phone the change is in sight: after a touch of any control, of every explorer, in every chapter."""

from __future__ import annotations

import pytest
from built_book import SITE, built_pages, drawn

from allranks import explorers
from allranks.explorers.stories import STORIES

PHONE = {"width": 390, "height": 844}
SMALL = {"width": 390, "height": 664}  # the same phone with the browser's bars
ALL = "notebooks/reference/explorers.html"
HEADER = 50  # pixels at the top of the screen that the page's header covers
CUT = """figures => figures.filter((figure) => {
    const picture = figure.querySelector(".ar-narrow");
    return picture.scrollHeight > picture.clientHeight;
}).map(figure => figure.id)"""
PAGES = [name for name in built_pages() if 'class="ar-explorer"' in (SITE / name).read_text(encoding="utf-8")]
# Moves a control by one, and returns what a reader then has before his eyes.
TOUCH = """async ([explorer, name, header]) => {
    const figure = document.getElementById(explorer);
    const control = figure.querySelector(`[name=${name}]`);
    const picture = figure.querySelector(".ar-narrow");
    const row = control.closest(".ar-control");
    control.closest("details")?.setAttribute("open", "");
    row.scrollIntoView({ block: "end" });
    await new Promise((done) => setTimeout(done, 50));
    const drawn = () => [...picture.querySelectorAll(".ar-image > svg > :not(defs)")].slice(1);
    const answer = new Promise((done) => {
        for (const said of ["ar-drawn", "ar-refused", "ar-failed"]) {
            figure.addEventListener(said, () => done(said), { once: true });
        }
        setTimeout(() => done("nothing in 120 s"), 120_000);
    });
    const old = new Set(drawn().map((mark) => mark.outerHTML));
    if (control.disabled) return { answer: "idle" };
    if (control.type === "checkbox") control.click();
    else {
        const [value, last] = control.tagName === "SELECT"
            ? [control.selectedIndex, control.options.length - 1]
            : [Number(control.value), Number(control.max)];
        control.value = value < last ? value + 1 : value - 1;
        control.dispatchEvent(new Event("input", { bubbles: true }));
    }
    const said = await answer;
    const inside = (box, frame) => box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
    const frame = picture.getBoundingClientRect();
    const window = { top: Math.max(header, frame.top), bottom: Math.min(innerHeight, frame.bottom) };
    const below = { top: window.bottom - 1, bottom: innerHeight };
    const made = drawn().filter((mark) => !old.has(mark.outerHTML));
    const changed = made.map((mark) => mark.getBoundingClientRect());
    const refusals = [...figure.querySelectorAll(".ar-refusal:not(:empty)")];
    return {
        answer: said,
        picture: inside(frame, { top: header, bottom: innerHeight }),
        changed: changed.length,
        seen: changed.filter((box) => inside(box, window)).length,
        control: inside(row.getBoundingClientRect(), below),
        refused: refusals.some((one) => inside(one.getBoundingClientRect(), below)),
    };
}"""


MEASURED = """() => [...document.querySelectorAll("figure.ar-explorer")].every((figure) => {
    const picture = figure.querySelector(".ar-narrow");
    const high = Number.parseFloat(figure.style.getPropertyValue("--ar-high"));
    return !picture.checkVisibility() || high === picture.scrollHeight;
})"""
TOLD = """([name, words]) => {
    const figure = document.querySelector(`#explorer-${name}.ar-live:not([aria-busy])`);
    return figure?.querySelector(".ar-insight").textContent === words;
}"""


def explorers_on(page):
    """The id of each explorer of a page, and the names of its controls."""
    return page.evaluate(
        "() => [...document.querySelectorAll('figure.ar-explorer')].map((figure) => [figure.id,"
        " [...figure.querySelector('form').elements].map((one) => one.name).filter(Boolean)])"
    )


@pytest.mark.stamped("page")
@pytest.mark.parametrize("name", PAGES)
def test_after_a_touch_of_any_control_its_change_is_in_sight(address, open_page, name):
    visit = open_page(address + name, name, is_mobile=True, has_touch=True)
    page = visit.page
    page.set_viewport_size(SMALL if name == ALL else PHONE)
    page.wait_for_function(MEASURED)  # a frame after the new width
    assert page.locator("figure.ar-explorer").evaluate_all(CUT) == [], "whole while one reads"
    touched = changed = 0
    for explorer, controls in explorers_on(page):
        for control in controls:
            seen = page.evaluate(TOUCH, [explorer, control, HEADER])
            where = f"{explorer}, {control}: {seen}"
            if seen["answer"] == "ar-refused":
                assert seen["refused"], where
            elif seen["answer"] != "idle":
                assert seen["answer"] == "ar-drawn", where
                assert seen["picture"] and seen["control"], where
                assert seen["seen"] or not seen["changed"], where
                touched += 1
                changed += bool(seen["changed"])
    assert changed > touched / 2
    assert visit.problems == []
    page.close()


@pytest.mark.stamped("explorers")
@pytest.mark.parametrize("name", explorers.NAMES)
def test_a_step_of_the_story_is_pressed_read_and_seen_on_one_screen(address, open_page, name):
    options = {"is_mobile": True, "has_touch": True}
    page = drawn([open_page(address + ALL, name, **options)], open_page, **options).page
    page.set_viewport_size(PHONE)
    figure = page.locator(f"#explorer-{name}")
    figure.evaluate("figure => figure.scrollIntoView()")
    figure.locator('[data-do="tell"]').nth(2).tap()
    # the tap is a click later, and this figure may wait for all the others: each draws for the new width
    page.wait_for_function(TOLD, arg=[name, STORIES[name][2].words], timeout=120_000)
    tops = [figure.locator(part).bounding_box()["y"] for part in (".ar-story", ".ar-insight", ".ar-narrow")]
    assert HEADER <= tops[0] < tops[1] < tops[2] < PHONE["height"] * 0.56
    page.close()
