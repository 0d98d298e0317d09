"""Every explorer answers in a page as in Python: each control, by keyboard and by mouse, from a disk too."""

from __future__ import annotations

import gzip
from urllib.parse import quote

import pytest
from allranks_book.explorers import SCRIPTS, figure_html

from allranks import explorers
from allranks.explorers.frame.controls import Choice, Integer, Scale, Steps, Toggle, settings

pytestmark = pytest.mark.stamped("explorers")
SAME_PICTURE = """(picture) => {
    const expected = document.createElement("div");
    expected.innerHTML = picture;
    return document.querySelector(".ar-wide .ar-image").innerHTML === expected.innerHTML;
}"""

SAME_MARKS = """(marks) => {
    const expected = document.createElement("div");
    expected.innerHTML = marks;
    const each = (mark) => [mark.dataset.set, mark.ariaLabel, mark.getAttribute("x")];
    const drawn = (one) => [...one.children].map(each);
    const shown = document.querySelector(".ar-wide .ar-marks");
    return JSON.stringify(drawn(shown)) === JSON.stringify(drawn(expected.firstChild));
}"""


def page_of(name, root, given=None):
    """A page outside the book that holds one explorer and loads the book's styles and scripts."""
    shown = explorers.draw(name, given or {})
    static = f"{root}/_static"
    sheets = "".join(
        f'<link rel="stylesheet" href="{static}/{each}.css">' for each in ("palette", "explorers")
    )
    scripts = "".join(f'<script defer src="{static}/{each}"></script>' for each in SCRIPTS)
    return (
        f'<!doctype html><html lang="en" data-theme="light" data-content_root="{root}/"><title>One</title>'
        f'<meta name="viewport" content="width=device-width">{sheets}{scripts}<main><h1>One</h1>'
        f"{figure_html(name, given or {}, shown['svg'])}</main>"
    )


@pytest.fixture
def opened(site, tmp_path, open_page):
    """A function that opens an explorer from the disk, puts a hand on it, and waits until it is live."""

    def open_explorer(name, fragment="", given=None, **options):
        page = tmp_path / f"{name}.html"
        page.write_text(page_of(name, site.as_uri(), given), encoding="utf-8")
        visit = open_page(page.as_uri() + fragment, **options)
        visit.page.set_viewport_size({"width": 1000, "height": 1200})
        if options.get("java_script_enabled", True):
            visit.page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
            visit.page.dispatch_event("figure.ar-explorer form", "pointerenter")
            visit.page.locator("figure.ar-live").wait_for()
        return visit

    return open_explorer


def caption(page):
    return page.locator(".ar-words").inner_text()


def after(page, act):
    """Do `act` and wait until the figure has answered: with a picture, or with a refusal."""
    page.locator("figure.ar-explorer:not([aria-busy])").wait_for()  # it may be drawing for another reason
    act()
    page.locator("figure.ar-explorer:not([aria-busy])").wait_for()


def stop_the_clock(page):
    """What the page does after some time, it does when `page.clock` is told to run."""
    page.clock.install(time=0)
    page.clock.pause_at(3600)


def settings_of(page, name):
    """The settings that the page's controls show."""
    given = {}
    for control in explorers.explorer(name).CONTROLS:
        place = page.locator(f"[name={control.name}]")
        if isinstance(control, Toggle):
            given[control.name] = place.is_checked()
        else:
            position = int(place.input_value())
            named = isinstance(control, Choice | Scale)
            given[control.name] = control.options[position][0] if named else position
    return given


def shows_what_python_says(page, name):
    given = settings_of(page, name)
    try:
        shown = explorers.draw(name, given)
    except ValueError as refusal:
        assert f"{refusal}." in page.locator(".ar-refusal:not(:empty)").all_inner_texts()
        return
    assert page.locator(".ar-refusal:not(:empty)").count() == 0
    assert caption(page) == shown["text"]
    if "result" in shown:
        assert tuple(page.locator(".ar-result > *").all_inner_texts()) == shown["result"]
    if "marks" in shown:
        assert page.evaluate(SAME_MARKS, shown["marks"])
    assert page.evaluate(SAME_PICTURE, shown["svg"]), f"another picture than Python's at {given}"


@pytest.mark.parametrize("name", explorers.NAMES)
def test_every_control_answers_to_the_keyboard(name, opened):
    visit = opened(name)
    for control in explorers.explorer(name).CONTROLS:
        place = visit.page.locator(f"[name={control.name}]")
        if place.is_disabled():
            continue
        place.focus()
        key = (
            "Space"
            if isinstance(control, Toggle)
            else "ArrowDown"
            if isinstance(control, Choice)
            else "ArrowRight"
        )
        if isinstance(control, Choice) and int(place.input_value()) == len(control.options) - 1:
            key = "ArrowUp"
        if isinstance(control, Integer | Scale | Steps) and place.input_value() == place.get_attribute("max"):
            key = "ArrowLeft"
        before = settings_of(visit.page, name)
        after(visit.page, lambda key=key: visit.page.keyboard.press(key))
        assert settings_of(visit.page, name)[control.name] != before[control.name]
        shows_what_python_says(visit.page, name)
    assert visit.problems == [] and visit.foreign == []
    visit.page.close()


@pytest.mark.parametrize("name", explorers.NAMES)
def test_every_control_answers_to_the_mouse(name, opened):
    visit = opened(name)
    for control in explorers.explorer(name).CONTROLS:
        place = visit.page.locator(f"[name={control.name}]")
        if place.is_disabled():
            continue
        if isinstance(control, Choice):
            other = next(i for i in range(len(control.options)) if str(i) != place.input_value())
            after(visit.page, lambda place=place, other=other: place.select_option(str(other)))
        else:
            box = place.bounding_box()
            where = 0.3 if isinstance(control, Integer | Scale | Steps) else 0.5
            if isinstance(control, Integer | Scale) and _position(place) < 0.5:
                where = 0.8
            point = {"x": box["width"] * where, "y": box["height"] / 2}
            after(visit.page, lambda place=place, point=point: place.click(position=point))
        shows_what_python_says(visit.page, name)
        after(visit.page, visit.page.get_by_role("button", name="Reset").click)
    shows_what_python_says(visit.page, name)
    assert settings_of(visit.page, name) == settings(explorers.explorer(name).CONTROLS, {})
    assert visit.problems == [] and visit.foreign == []
    visit.page.close()


def _position(place):
    low, high = int(place.get_attribute("min")), int(place.get_attribute("max"))
    return (int(place.input_value()) - low) / max(high - low, 1)


def with_steps():
    return [n for n in explorers.NAMES if any(isinstance(c, Steps) for c in explorers.explorer(n).CONTROLS)]


SEVERAL_STEPS = {  # explorers whose first setting has fewer than two steps to come
    "strategies": {"strategy": "sharded"},
    "waiting": {"pattern": "in_turn"},
}


@pytest.mark.parametrize("name", with_steps())
def test_steps_go_on_and_back_play_and_pause(name, opened):
    visit = opened(name, given=SEVERAL_STEPS.get(name))
    page = visit.page
    step = next(c.name for c in explorers.explorer(name).CONTROLS if isinstance(c, Steps))
    first = settings_of(page, name)[step]
    after(page, page.get_by_role("button", name="One step on").click)
    assert settings_of(page, name)[step] == first + 1
    shows_what_python_says(page, name)
    after(page, page.get_by_role("button", name="One step back").click)
    assert settings_of(page, name)[step] == first
    stop_the_clock(page)
    page.get_by_role("button", name="Play", exact=True).click()
    for played in (1, 2):
        after(page, lambda: page.clock.run_for(700))
        assert settings_of(page, name)[step] == first + played
    page.get_by_role("button", name="Pause").click()
    still = settings_of(page, name)
    after(page, lambda: page.clock.run_for(2000))
    assert settings_of(page, name) == still
    assert visit.problems == []
    page.close()


@pytest.mark.stamped(None)
def test_a_link_leads_to_the_setting_it_names(opened):
    fragment = f"#explorer-pipeline:schedule=zb_h1,stages=6,beside={quote('')}"
    visit = opened("pipeline", fragment)
    visit.page.wait_for_function(
        "document.querySelector('.ar-words').textContent.startsWith('ZB-H1 on 6 ranks')"
    )
    given = settings_of(visit.page, "pipeline")
    assert (given["schedule"], given["stages"], given["beside"]) == ("zb_h1", 6, "")
    shows_what_python_says(visit.page, "pipeline")
    visit.page.close()


def test_the_address_remembers_a_setting_and_forgets_it_on_reset(opened):
    visit = opened("pipeline")
    visit.page.locator("[name=stages]").focus()
    after(visit.page, lambda: visit.page.keyboard.press("ArrowRight"))
    assert visit.page.evaluate("location.href").endswith("#explorer-pipeline:stages=5")
    after(visit.page, visit.page.get_by_role("button", name="Reset").click)
    assert "stages" not in visit.page.evaluate("location.href")
    visit.page.close()


def test_a_setting_that_is_not_allowed_is_explained_beside_its_control_and_keeps_the_picture(opened):
    visit = opened("pipeline", given={"schedule": "dualpipe", "stages": 4, "microbatches": 8, "beside": ""})
    before = visit.page.locator(".ar-wide .ar-image").inner_html()
    visit.page.locator("[name=stages]").focus()
    after(visit.page, lambda: visit.page.keyboard.press("ArrowRight"))
    refusal = visit.page.locator("#pipeline-stages-refusal")
    assert refusal.inner_text().startswith("stages must be a multiple of")
    assert refusal.get_attribute("role") == "alert"
    assert visit.page.locator("[name=stages]").get_attribute("aria-invalid") == "true"
    assert visit.page.locator(".ar-wide .ar-image").inner_html() == before
    visit.page.set_viewport_size({"width": 390, "height": 800})  # the same in its narrow form
    narrow = explorers.draw(
        "pipeline", {"schedule": "dualpipe", "stages": 4, "microbatches": 8, "beside": ""}, 360
    )
    visit.page.wait_for_function(SAME_PICTURE.replace("ar-wide", "ar-narrow"), arg=narrow["svg"])
    visit.page.locator("figure.ar-explorer:not([aria-busy])").wait_for()
    assert refusal.inner_text().startswith("stages must be a multiple of")
    visit.page.close()


def test_the_control_that_a_refusal_names_can_be_moved(opened):
    page = opened("all_reduce", given={"world_size": 6}).page
    control = page.locator("[name=ranks_per_node]")
    assert control.is_disabled()  # a ring has no nodes
    after(page, lambda: page.locator("[name=algorithm]").select_option(label="two-level ring"))
    assert page.locator("#all_reduce-ranks_per_node-refusal").inner_text().startswith("ranks_per_node must")
    assert control.is_enabled()
    page.close()


def test_fewer_steps_take_the_step_with_them(opened):
    page = opened("all_reduce", given={"world_size": 8, "step": 14}).page
    place = page.locator("[name=world_size]")
    place.focus()
    for _ in range(4):
        after(page, lambda: page.keyboard.press("ArrowLeft"))
    assert settings_of(page, "all_reduce")["step"] == 6
    after(page, page.locator("[data-do=back]").click)
    assert settings_of(page, "all_reduce")["step"] == 5
    shows_what_python_says(page, "all_reduce")
    page.close()


def test_a_pause_is_remembered_and_a_link_that_sets_can_open_a_tab(opened, open_page, address):
    page = opened("all_reduce").page
    stop_the_clock(page)
    page.locator("[data-do=play]").click()
    page.clock.run_for(3 * 700)
    page.locator("[data-do=play]").click()
    step = settings_of(page, "all_reduce")["step"]
    assert step and page.evaluate("location.hash").endswith(f"step={step}")
    page.close()
    page = open_page(address + "notebooks/pipeline_parallel/zero_bubble_v.html").page
    with page.context.expect_page() as tab:
        page.locator("a.ar-set").first.click(modifiers=["Control"])
    tab.value.close()
    page.close()


def test_after_back_controls_and_picture_agree(address, open_page):
    page = open_page(address + "notebooks/pipeline_parallel/gpipe.html").page
    form = "#explorer-pipeline form"
    page.dispatch_event(form, "pointerenter")
    page.locator("figure.ar-live").first.wait_for()
    page.locator(f"{form} [name=stages]").focus()
    page.keyboard.press("ArrowRight")
    page.evaluate("history.replaceState(null, '', location.pathname)")  # as after a link to a heading
    page.goto(address + "notebooks/pipeline_parallel/problems.html")
    page.go_back()
    stages = page.locator(f"{form} [name=stages]")
    assert caption(page).startswith(f"GPipe on {stages.input_value()} ranks")
    assert stages.locator("+ output").inner_text() == stages.input_value()
    page.close()


def test_without_scripts_the_first_picture_and_its_words_are_there_and_no_dead_controls(opened):
    visit = opened("pipeline", java_script_enabled=False)
    assert visit.page.locator(".ar-wide .ar-image svg").is_visible()
    assert caption(visit.page) == explorers.draw("pipeline")["text"]
    assert not visit.page.locator("form.ar-controls").is_visible()
    visit.page.close()


def test_where_webassembly_is_not_allowed_the_picture_stays_and_a_sentence_says_so(site, tmp_path, open_page):
    page = tmp_path / "blocked.html"
    blocked = page_of("pipeline", site.as_uri()).replace(
        "<title>", "<script>delete window.WebAssembly</script><title>"
    )
    page.write_text(blocked, encoding="utf-8")
    visit = open_page(page.as_uri())
    visit.page.dispatch_event("form.ar-controls", "pointerenter")
    visit.page.wait_for_function("document.querySelector('.ar-words').textContent.includes('WebAssembly')")
    assert caption(visit.page).startswith(explorers.draw("pipeline")["text"])
    assert visit.page.locator(".ar-wide .ar-image svg").is_visible()
    visit.page.close()


def test_on_a_phone_the_narrow_picture_answers(opened):
    visit = opened("pipeline")
    visit.page.set_viewport_size({"width": 390, "height": 800})
    visit.page.locator("[name=stages]").focus()
    after(visit.page, lambda: visit.page.keyboard.press("ArrowRight"))
    visit.page.locator(".ar-narrow .ar-image svg").wait_for()
    assert not visit.page.locator(".ar-wide .ar-image svg").is_visible()
    shown = explorers.draw("pipeline", settings_of(visit.page, "pipeline"), 360)
    # it draws once more when the browser tells it of the new width
    visit.page.wait_for_function(SAME_PICTURE.replace("ar-wide", "ar-narrow"), arg=shown["svg"])
    visit.page.close()


CUT_OFF = """select => {
    const style = getComputedStyle(select), measure = document.createElement("canvas").getContext("2d");
    measure.font = style.font;
    const arrow = 20, room = select.clientWidth - parseFloat(style.paddingLeft) - arrow;
    return [...select.options].map(each => each.text).filter(text => measure.measureText(text).width > room);
}"""


@pytest.mark.parametrize("name", explorers.NAMES)
def test_no_choice_is_cut_off_beside_its_label(address, open_page, name):
    visit = open_page(address + "notebooks/reference/explorers.html")
    visit.page.set_viewport_size({"width": 1280, "height": 900})
    for select in visit.page.locator(f"#explorer-{name} select").all():
        assert select.evaluate(CUT_OFF) == []
    visit.page.close()


@pytest.mark.stamped(None)
def test_the_interpreter_is_asked_for_once_and_only_when_needed(address, open_page):
    visit = open_page(address + "notebooks/reference/explorers.html")

    def asked():
        return sum(url.endswith("explorers/python.js") for url in visit.requested)

    visit.scroll_through()
    assert asked() == 0, "read to its end, and no hand on any figure"
    for form in visit.page.locator("figure.ar-explorer form").all():
        form.dispatch_event("pointerenter")
    all_live = "!document.querySelector('figure.ar-explorer:not(.ar-live)')"
    visit.page.wait_for_function(all_live, timeout=120_000)  # one after the other
    assert asked() == 1
    visit.page.close()
    plain = open_page(address + "book/notation.html")
    assert not [url for url in plain.requested if "explorers/" in url]
    plain.page.close()


@pytest.mark.parametrize("name", explorers.NAMES)
def test_what_an_explorer_adds_to_a_page_is_light(name, site):
    parts = [*SCRIPTS, "explorers.css", "explorers/python.js"]
    parts.append(f"explorers/{name}.js")
    total = sum(len(gzip.compress((site / "_static" / part).read_bytes(), 9)) for part in parts)
    assert total <= 260_000, f"{total} bytes"
