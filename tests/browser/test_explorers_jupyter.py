"""In JupyterLab an explorer is ipywidgets: run all, move a slider, and the picture changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request

import nbformat
import pytest

from allranks import explorers

pytestmark = pytest.mark.stamped("explorers")
NOTEBOOK = "explorer.ipynb"
PATIENCE = 300  # seconds, on a busy machine
SAYS = "text => [...document.querySelectorAll('.widget-vbox p')].at(-1)?.textContent === text"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab that serves a folder with a notebook that shows an explorer."""
    folder = tmp_path_factory.mktemp("lab")
    cells = ["from allranks import explorers", 'explorers.show("pipeline", stages=4, microbatches=8)']
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata.kernelspec = {
        "name": "python3",
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
    }
    nbformat.write(made, folder / NOTEBOOK)
    options = {
        "ServerApp.token": "test",
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": folder,
        "LabApp.news_url": None,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
    server = subprocess.Popen(
        command + [f"--{name}={value}" for name, value in options.items()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "JUPYTERLAB_SETTINGS_DIR": f"{folder}/.lab",
            "JUPYTER_CONFIG_DIR": f"{folder}/.config",
            "JUPYTER_RUNTIME_DIR": f"{folder}/.runtime",
        },
    )
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            [told] = folder.glob(".runtime/jpserver-*.json")
            address = f"http://127.0.0.1:{json.loads(told.read_text())['port']}"
            urllib.request.urlopen(f"{address}/api/status?token=test", timeout=30).close()
            break
        except (OSError, ValueError):  # not there, not written to its end, or not listening
            assert server.poll() is None, "JupyterLab ended"
            assert time.monotonic() < deadline, f"JupyterLab did not answer within {PATIENCE} s"
            time.sleep(0.2)
    yield address
    server.terminate()
    server.wait(timeout=PATIENCE)


def test_run_all_move_a_slider_and_the_picture_changes(lab, open_page):
    visit = open_page(f"{lab}/api/status?token=test")
    page = visit.page
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(f"{lab}/lab/tree/{NOTEBOOK}?token=test")
    page.get_by_text("Python 3 (ipykernel)").first.wait_for()
    page.locator(".jp-Cell").first.wait_for()
    page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for()
    page.locator(".lm-MenuBar-item", has_text="Run").click()
    page.locator(".lm-Menu-item", has_text="Run All Cells").first.click()
    widget = page.locator(".jp-OutputArea-output .widget-vbox").first
    widget.wait_for()
    before = explorers.draw("pipeline", {"stages": 4, "microbatches": 8})
    page.wait_for_function(SAYS, arg=before["text"])
    slider = widget.locator(".widget-slider", has_text="ranks p").locator("[role=slider], .noUi-handle").first
    slider.focus()
    page.keyboard.press("ArrowRight")
    after = explorers.draw("pipeline", {"stages": 5, "microbatches": 8})
    page.wait_for_function(SAYS, arg=after["text"])
    assert widget.locator("svg").first.text_content().count("rank ") == 10
    labels = [each.strip() for each in widget.locator(".widget-label").all_inner_texts() if each.strip()]
    assert labels == [control.label for control in explorers.explorer("pipeline").CONTROLS]
    assert visit.foreign == []
    page.close()
