"""In JupyterLab an explorer is ipywidgets: run all, move a slider, and the picture changes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request

import nbformat
import pytest

from allranks import explorers

NOTEBOOK = "explorer.ipynb"
START_SECONDS = 60


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "ServerApp.token": "test",
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": folder,
        "LabApp.news_url": None,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    server = subprocess.Popen(
        command + [f"--{name}={value}" for name, value in options.items()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "JUPYTERLAB_SETTINGS_DIR": f"{folder}/.lab",
            "JUPYTER_CONFIG_DIR": f"{folder}/.config",
        },
    )
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{address}/api/status?token=test", timeout=2).close()
            break
        except OSError:
            assert server.poll() is None, "JupyterLab ended"
            assert time.monotonic() < deadline, f"JupyterLab did not answer within {START_SECONDS} s"
            time.sleep(0.2)
    yield address
    server.terminate()
    server.wait(timeout=20)


def test_run_all_move_a_slider_and_the_picture_changes(lab, open_page):
    visit = open_page(f"{lab}/lab/tree/{NOTEBOOK}?token=test")
    page = visit.page
    page.set_default_timeout(60_000)
    page.get_by_text("Python 3 (ipykernel)").first.wait_for()
    page.locator(".jp-Cell").first.wait_for()
    page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for()
    page.locator(".lm-MenuBar-item", has_text="Run").click()
    page.locator(".lm-Menu-item", has_text="Run All Cells").first.click()
    widget = page.locator(".jp-OutputArea-output .widget-vbox").first
    widget.wait_for()
    words = widget.locator("p").last
    before = explorers.draw("pipeline", {"stages": 4, "microbatches": 8})
    assert words.inner_text() == before["text"]
    slider = widget.locator(".widget-slider", has_text="ranks p").locator("[role=slider], .noUi-handle").first
    slider.focus()
    page.keyboard.press("ArrowRight")
    after = explorers.draw("pipeline", {"stages": 5, "microbatches": 8})
    page.wait_for_function(
        "(text) => [...document.querySelectorAll('.widget-vbox p')].some((p) => p.textContent === text)",
        arg=after["text"],
    )
    assert widget.locator("svg").first.text_content().count("rank ") == 10
    labels = [each.strip() for each in widget.locator(".widget-label").all_inner_texts() if each.strip()]
    assert labels == [control.label for control in explorers.explorer("pipeline").CONTROLS]
    assert visit.foreign == []
    page.close()
