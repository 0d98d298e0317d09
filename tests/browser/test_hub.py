"""From a page of the book to its notebook on a hub: sign in, run all, a slider, a deadlock, and out."""

from __future__ import annotations

import re
import sys

import nbformat
import pytest
from built_book import ROOT, SITE
from running_hub import Hub, Person

from allranks import explorers

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the hub's sandboxes are Linux's"),
    pytest.mark.stamped("hub"),
]
CHAPTER = "notebooks/foundations/all_reduce"
DEADLOCK = """import torch, torch.distributed as dist
from allranks import launch
def after_you():
    print("please")
    dist.recv(torch.zeros(1), src=1 - dist.get_rank())
launch(after_you, world_size=2, timeout=600)"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    hub = Hub(tmp_path_factory.mktemp("hub"), HUB_MEMORY="2G")
    yield hub
    hub.end()


@pytest.fixture(scope="module")
def carol(hub, browser):
    carol = Person(hub, browser, "carol")
    carol.sign_up()
    return carol


@pytest.fixture(scope="module")
def notebook(hub, carol, address):
    """JupyterLab, as carol's browser shows it after she has followed the link of a page."""
    carol.page.goto(f"{address}{CHAPTER}.html")
    carol.page.locator(".ar-open > summary").click()
    carol.page.get_by_label("On your JupyterHub").fill(hub.address)
    carol.page.keyboard.press("Enter")
    with carol.context.expect_page() as opened:
        carol.page.get_by_role("link", name="On your hub").click()
    page = opened.value
    carol.sign_in(page)
    page.wait_for_url(f"**/user/carol/lab/**/allranks/{CHAPTER}.ipynb")
    page.locator(".jp-Cell").first.wait_for()
    wait_until(page, "Idle")
    return page


def wait_until(page, state):
    page.locator("#jp-main-statusbar", has_text=f"Python 3 (ipykernel) | {state}").wait_for()


def choose(page, menu, entry):
    page.locator(".lm-MenuBar-item", has_text=menu).first.click()
    page.locator(".lm-Menu-item:not(.lm-mod-hidden)", has_text=entry).first.click()


def press(page, what):
    page.locator(f'.jp-Toolbar-item[data-jp-item-name="{what}"] >> button').click()


def run_below_the_first(page, code):
    """Add a cell below the first code cell and run it; return its place."""
    page.locator(".jp-CodeCell .jp-InputPrompt").first.click()
    for key in ("Escape", "b", "Enter"):
        page.keyboard.press(key)
    cell = page.locator(".jp-Cell.jp-mod-active")
    cell.locator(".cm-editor.cm-focused").wait_for()
    page.keyboard.insert_text(code)
    page.keyboard.press("Control+Enter")
    return cell


def stream(cell):
    """What a cell printed."""
    return "".join(out.text for out in cell.get("outputs", []) if out.output_type == "stream")


@pytest.mark.stamped(None)
def test_a_new_user_signs_up(carol):
    assert carol.page.get_by_text("The signup was successful").is_visible()


@pytest.mark.stamped(None)
def test_a_page_leads_to_its_notebook_on_the_hub(hub, notebook):
    assert notebook.url.startswith(f"{hub.address}/user/carol/lab/")
    assert notebook.locator(".jp-CodeCell").count() > 1


def test_run_all_shows_what_the_page_shows(carol, notebook):
    choose(notebook, "Edit", "Clear Outputs of All Cells")  # and their numbers, which are stored too
    notebook.locator(".jp-InputPrompt", has_text=re.compile(r"^\[\d+\]:$")).wait_for(state="detached")
    choose(notebook, "Run", "Run All Cells")
    committed = nbformat.read(ROOT / f"{CHAPTER}.ipynb", 4).cells
    count = sum(cell.cell_type == "code" for cell in committed)
    for number in range(1, count + 1):  # a busy machine may take long for all of them, not for one
        notebook.locator(".jp-InputPrompt", has_text=re.compile(rf"^\[{number}\]:$")).wait_for(
            state="attached"
        )
    wait_until(notebook, "Idle")  # which a kernel says after all that it printed
    notebook.keyboard.press("Control+s")
    path = f"api/contents/allranks/{CHAPTER}.ipynb"
    notebook.locator(".lm-TabBar-tab.lm-mod-current:not(.jp-mod-dirty)", has_text="all_reduce").wait_for()
    ran = nbformat.from_dict(carol.call("GET", path)["content"]).cells
    assert [stream(cell) for cell in ran] == [stream(cell) for cell in committed]
    printed = "".join(map(stream, ran))
    assert "rank 0" in printed and "rank 3" in printed


def test_an_explorer_answers_to_a_slider(hub, notebook):
    widget = notebook.locator(".jp-OutputArea-output .widget-vbox").first
    widget.scroll_into_view_if_needed()
    ranks = next(one for one in explorers.explorer("all_reduce").CONTROLS if one.name == "world_size")
    slider = (
        widget.locator(".widget-slider", has_text=ranks.label).locator("[role=slider], .noUi-handle").first
    )
    before, after = (
        explorers.draw("all_reduce", {"beside": "halving_doubling", "world_size": p})["text"] for p in (4, 5)
    )
    hub.wait_for(lambda: widget.locator("p").last.inner_text() == before, "the explorer to be drawn")

    def answers():
        if float(slider.get_attribute("aria-valuenow")) == 4:  # JupyterLab may still be moving the focus
            slider.press("ArrowRight")
        return widget.locator("p").last.inner_text() == after

    hub.wait_for(answers, "the explorer's words")


def test_a_deadlock_ends_by_the_interrupt_button(hub, carol, notebook):
    quiet = len(hub.of("carol"))
    cell = run_below_the_first(notebook, DEADLOCK)
    cell.locator(".jp-OutputArea-output", has_text=re.compile("(please.*){2}", re.DOTALL)).wait_for()
    press(notebook, "interrupt")
    cell.get_by_text("Interrupted: all ranks were ended").wait_for()
    assert "waiting in recv" in cell.inner_text()
    wait_until(notebook, "Idle")
    hub.wait_for(lambda: len(hub.of("carol")) <= quiet, "the ranks to end")


@pytest.mark.stamped(None)
def test_the_kernel_restarts_and_runs_again(notebook):
    press(notebook, "restart")
    with notebook.expect_response("**/api/kernels/*/restart**"):
        notebook.locator(".jp-Dialog-button", has_text="Restart").click()
    wait_until(notebook, "Idle")
    cell = run_below_the_first(notebook, "6 * 7")
    cell.locator(".jp-OutputArea-output", has_text="42").wait_for()
    assert cell.locator(".jp-InputPrompt").inner_text() == "[1]:"
    SITE.parent.joinpath("screenshots").mkdir(exist_ok=True)
    notebook.screenshot(path=SITE.parent / "screenshots" / "hub.png")


def test_who_logs_out_leaves_no_process(hub, carol, notebook):
    left = hub.of("carol")
    assert len(left) >= 4, left
    notebook.on("dialog", lambda dialog: dialog.accept())
    choose(notebook, "File", "Log Out")
    notebook.wait_for_url("**/hub/login")
    hub.wait_for(lambda: hub.has_ended(left), "carol's processes to end")
    carol.page.goto(carol.own)
    carol.page.get_by_role("button", name="Sign in").wait_for()
