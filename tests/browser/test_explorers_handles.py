"""Grips in a picture can be dragged by mouse and finger and moved by keys; a drag is taken back by Escape."""

from __future__ import annotations

import pytest
from test_explorers_live import after, opened, page_of, settings_of, shows_what_python_says  # noqa: F401

from allranks import explorers

pytestmark = pytest.mark.stamped("explorers")
HANDLES = [
    (name, part.split('"')[0])
    for name in explorers.NAMES
    for part in explorers.draw(name).get("handles", "").split('class="ar-handle" data-id="')[1:]
]
WHOLE = {"width": 390, "height": 844}


def grip(page, name, width="wide"):
    return page.locator(f'.ar-{width} .ar-handle[data-id="{name}"]')


def stops(handle):
    return [part.split("=") for part in handle.get_attribute("data-stops").split(" ")]


def value(page, name, control):
    """The value of a control as an address says it."""
    now = settings_of(page, name)[control]
    return str(now)


def is_at(page, name, control, wanted):
    now = settings_of(page, name)[control]
    return str(now) == wanted or (not isinstance(now, str) and float(now) == float(wanted))


def middle(handle, part=".ar-grip"):
    box = handle.locator(part).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def far_stop(handle):
    """(its place, the way to it in pixels of the page) of a stop that is some way off."""
    at, listed = int(handle.get_attribute("aria-valuenow")), stops(handle)
    scale = handle.evaluate(
        "one => { const svg = one.ownerSVGElement;"
        " return svg.getBoundingClientRect().width / svg.viewBox.baseVal.width; }"
    )
    here = float(listed[at][1])
    far = min(
        (abs(abs(float(px) - here) - 70), place)
        for place, (_, px) in enumerate(listed)
        if abs(float(px) - here) >= 3
    )[1]
    return far, (float(listed[far][1]) - here) * scale


def moved(start, way, handle):
    across = handle.get_attribute("data-axis") == "x"
    return (start[0] + way, start[1]) if across else (start[0], start[1] + way)


def test_the_pictures_that_ask_for_a_hand_have_a_grip():
    have = {name for name, _ in HANDLES}
    assert {"all_reduce", "buckets", "context_parallel", "experts", "memory"} <= have
    assert {"mesh", "pipeline", "precision", "zero"} <= have


@pytest.mark.parametrize("name, control", HANDLES)
def test_a_grip_is_dragged_by_the_mouse_to_the_value_that_stands_there(name, control, opened):  # noqa: F811
    page = opened(name).page
    handle = grip(page, control)
    far, way = far_stop(handle)
    wanted, start = stops(handle)[far], middle(handle)
    near = {each for each, px in stops(handle) if abs(float(px) - float(wanted[1])) < 1}
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*moved(start, way / 2, handle))
    after(page, lambda: page.mouse.move(*moved(start, way, handle)))
    page.mouse.up()
    assert any(is_at(page, name, control, each) for each in near), (near, settings_of(page, name)[control])
    shows_what_python_says(page, name)
    assert f"{control}=" in page.evaluate("location.hash")
    assert handle.evaluate("one => one === document.activeElement")
    page.close()


@pytest.mark.parametrize("name, control", HANDLES)
def test_a_grip_is_a_slider_of_the_keyboard_and_escape_takes_back(name, control, opened):  # noqa: F811
    page = opened(name).page
    handle = grip(page, control)
    assert handle.get_attribute("role") == "slider" and handle.get_attribute("aria-label")
    first, listed = int(handle.get_attribute("aria-valuenow")), stops(handle)
    handle.focus()
    step = 1 if first + 1 < len(listed) else -1
    after(page, lambda: page.keyboard.press("ArrowRight" if step > 0 else "ArrowLeft"))
    assert is_at(page, name, control, listed[first + step][0])
    shows_what_python_says(page, name)
    assert handle.evaluate("one => one === document.activeElement")
    assert handle.get_attribute("aria-valuetext")
    after(page, lambda: page.keyboard.press("Escape"))
    assert is_at(page, name, control, listed[first][0])
    for key, end in (("Home", 0), ("End", -1)):
        now = stops(handle)
        after(page, lambda key=key: page.keyboard.press(key))
        assert is_at(page, name, control, now[end][0]), key
    page.close()


@pytest.mark.parametrize("name", ["pipeline", "experts"])
def test_escape_ends_a_drag_where_it_began(name, opened):  # noqa: F811
    page = opened(name).page
    handle, before = page.locator(".ar-wide .ar-handle").first, settings_of(page, name)
    _, way = far_stop(handle)
    start = middle(handle)
    page.mouse.move(*start)
    page.mouse.down()
    after(page, lambda: page.mouse.move(*moved(start, way, handle)))
    assert settings_of(page, name) != before
    after(page, lambda: page.keyboard.press("Escape"))
    assert settings_of(page, name) == before
    page.mouse.move(*start)
    page.mouse.up()
    assert settings_of(page, name) == before
    page.close()


def test_a_value_that_is_refused_is_not_kept_by_a_drag(opened):  # noqa: F811
    page = opened(
        "pipeline", given={"schedule": "dualpipe", "beside": "", "stages": 4, "microbatches": 8}
    ).page
    handle = grip(page, "microbatches")
    start, (_, there) = middle(handle), next(each for each in stops(handle) if each[0] == "3")
    here = stops(handle)[int(handle.get_attribute("aria-valuenow"))][1]
    page.mouse.move(*start)
    page.mouse.down()
    after(page, lambda: page.mouse.move(start[0] + float(there) - float(here), start[1]))
    assert page.locator(".ar-refusal:not(:empty)").count() == 1
    after(page, page.mouse.up)
    assert settings_of(page, "pipeline")["microbatches"] == 8
    assert page.locator(".ar-refusal:not(:empty)").count() == 0
    page.mouse.move(*middle(handle))
    page.mouse.down()
    page.evaluate("""() => { // it is let go before the answer has come
      const figure = document.querySelector("figure.ar-explorer");
      const let_go = () => figure.querySelector(".ar-wide").dispatchEvent(
        new PointerEvent("pointerup", { bubbles: true }));
      figure.addEventListener("ar-hand", () => setTimeout(let_go), { once: true });
    }""")
    after(page, lambda: page.mouse.move(start[0] + float(there) - float(here), start[1]))
    page.mouse.up()
    page.wait_for_function("!document.querySelector('.ar-stale, [aria-busy]')")
    assert settings_of(page, "pipeline")["microbatches"] == 8
    page.close()


@pytest.fixture
def on_a_phone(site, tmp_path, open_page):
    """A function that opens an explorer on a phone, with room to scroll above and below."""

    def open_explorer(name):
        path, room = tmp_path / f"{name}.html", '<p style="height:900px">room</p>'
        text = (
            page_of(name, site.as_uri())
            .replace("<figure", f"{room}<figure")
            .replace("</main>", f"{room}</main>")
        )
        path.write_text(text, encoding="utf-8")
        page = open_page(path.as_uri(), is_mobile=True, has_touch=True).page
        page.set_viewport_size(WHOLE)
        page.dispatch_event("figure.ar-explorer form", "pointerenter")
        page.locator("figure.ar-live").wait_for()
        return page

    return open_explorer


def swipe(page, start, end):
    """A finger from one point to another, as the browser gets it from a screen."""
    session = page.context.new_cdp_session(page)

    def send(kind, *points):
        at = [{"x": x, "y": y} for x, y in points]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})

    send("touchStart", start)
    for part in range(1, 11):
        send("touchMove", tuple(a + (b - a) * part / 10 for a, b in zip(start, end, strict=True)))
        page.wait_for_timeout(16)
    send("touchEnd")


SETTLED = """() => {
    window.same = scrollY === window.last ? window.same + 1 : 0;
    window.last = scrollY;
    return window.same === 15 && !(window.same = 0);
}"""


def settle(page):
    """Wait until the page does not scroll any more: frames are looked at, as a busy machine draws few."""
    page.wait_for_function(SETTLED)


@pytest.mark.parametrize("name", sorted({name for name, _ in HANDLES}))
def test_a_finger_drags_along_the_axis_and_scrolls_across_it(name, on_a_phone):
    page = on_a_phone(name)
    handle = page.locator(".ar-narrow .ar-handle").last
    control = handle.get_attribute("data-id")
    handle.evaluate("one => one.scrollIntoView({ block: 'center' })")
    box = handle.locator(".ar-reach").bounding_box()
    assert min(box["width"], box["height"]) >= 44
    settle(page)
    before, top = settings_of(page, name)[control], page.evaluate("scrollY")
    start = middle(handle)
    across = handle.get_attribute("data-axis") == "x"
    if across:  # a finger that moves across the axis scrolls, and changes nothing
        swipe(page, start, (start[0], start[1] - 150))
        page.wait_for_function("top => scrollY > top + 50", arg=top)
        settle(page)
        assert settings_of(page, name)[control] == before
        handle.evaluate("one => one.scrollIntoView({ block: 'center' })")
        settle(page)
        start = middle(handle)
    place = "document.querySelector('.ar-narrow').getBoundingClientRect().top"
    top, (_, way) = page.evaluate(place), far_stop(handle)
    after(page, lambda: swipe(page, start, moved(start, way, handle)))
    page.locator("figure.ar-explorer:not([aria-busy])").wait_for()
    assert settings_of(page, name)[control] != before
    if across:  # words above may take another line: what counts is that the picture stays under the finger
        assert abs(page.evaluate(place) - top) <= 1
    page.close()


def test_what_moves_between_two_states_is_drawn_on_its_way_unless_motion_is_unwelcome(opened):  # noqa: F811
    page = opened("all_reduce").page
    ways = "document.getAnimations().filter(one => one.effect.target.matches('.ar-wide .ar-moving')).length"
    count = f"one => one.addEventListener('ar-drawn', () => {{ window.ways = {ways}; }})"
    page.eval_on_selector("figure.ar-explorer", count)  # now: they are over soon
    step = page.get_by_role("button", name="One step on")
    after(page, step.click)
    assert page.evaluate("ways") == 0
    page.emulate_media(reduced_motion="no-preference")
    place = "one => one.getBoundingClientRect().top"
    thing = page.locator('.ar-wide .ar-moving[data-id="4-3-4-6"]')
    first = thing.evaluate(place)
    after(page, step.click)
    assert page.evaluate("ways") >= 8, "each of the eight messages is on its way"
    last = "document.getAnimations().every(one => one.playState === 'finished')"
    page.wait_for_function(f"document.getAnimations().length === 0 || {last}")
    assert thing.evaluate(place) > first + 20
    page.close()


def test_without_scripts_and_on_paper_there_are_no_grips(opened):  # noqa: F811
    page = opened("zero").page
    assert page.locator(".ar-wide .ar-grips").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".ar-wide .ar-grips").is_hidden()
    page.close()
    page = opened("zero", java_script_enabled=False).page
    assert page.locator(".ar-grips").count() == 0
    page.close()
