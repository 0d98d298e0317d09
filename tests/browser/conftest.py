"""Serves the built book to a real browser that can reach no other host."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from built_book import SITE, STUCK, Visit, built_pages, drawn
from playwright.sync_api import expect, sync_playwright
from xdist.scheduler import LoadScopeScheduling

BROWSERS = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")
VISITING = ("test_pages.py",)  # their tests share the fixture `visit`
PATIENCE_MS = 120_000  # for a page to load, on a busy machine
expect.set_options(timeout=30_000)  # as long as Playwright waits elsewhere
FONTS_LATE_S = 0.5  # after the first paint: a page must keep still also then
QUIET = [
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]


class ByPage(LoadScopeScheduling):
    """Keeps together the tests of one page, which is then opened once, and those of one file.

    xdist's own groups are lost since pytest 9.2, which no longer reads the names that xdist writes them into.
    """

    def _split_scope(self, nodeid):
        file, _, test = nodeid.partition("::")
        page = re.search(r"\[([\w/]+\.html)", test)
        return page[1] if page and Path(file).name in VISITING else file


def pytest_xdist_make_scheduler(config, log):
    """`pytest -n 2 --dist loadscope` hands out pages and files."""
    return ByPage(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_addoption(parser):
    """`pytest tests/browser/test_pages.py -k experts --screenshots`"""
    parser.addoption("--screenshots", action="store_true", help="keep a picture of every page, in _build")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items) -> None:
    """Put the pages last: each takes seconds, so that with `--no-loadscope-reorder` no worker waits long."""
    items.sort(key=lambda item: item.path.name in VISITING)


def pytest_sessionfinish(session):
    """Tell the process that collects the results."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["stuck"] = STUCK


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take in what a worker tells, unless it died."""
    STUCK.extend(getattr(node, "workeroutput", {}).get("stuck", []))


def pytest_terminal_summary(terminalreporter):
    """Name them: often, and it is not the browser alone."""
    for name in STUCK:
        terminalreporter.write_line(f"{name}: got no frames any more; closed, and opened again")


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and logs nothing; formulas get their fonts late, as they do over a slow line."""

    def do_GET(self) -> None:
        """Send a file."""
        if self.path.endswith(".woff2"):
            time.sleep(FONTS_LATE_S)
        super().do_GET()

    def log_message(self, *args) -> None:
        """Stay silent."""


class QuietServer(ThreadingHTTPServer):
    """Says nothing of a browser that has left before its answer was sent."""

    def handle_error(self, request, client_address) -> None:
        """Stay silent of that, and tell of all else."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built book."""
    if not (SITE / "searchindex.js").exists():
        pytest.fail("There is no built book in _build/html: build it with `make book`.", pytrace=False)
    return SITE


@pytest.fixture(scope="session")
def address(site):
    """The book's address on a free local port."""
    server = QuietServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium, headless."""
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        pytest.fail("No Chromium was found: install it with `sudo apt-get install chromium`.", pytrace=False)
    as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=[*QUIET, *as_root])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def open_page(browser):
    """A function that opens an address in a fresh profile and records what happens there."""

    def open_address(address: str, name: str = "", **options) -> Visit:
        page = browser.new_page(  # closed, it takes its profile with it
            viewport={"width": 1280, "height": 850}, color_scheme="light", reduced_motion="reduce", **options
        )
        visit = Visit(name, page)
        own = address.split("//")[0] + "//" + address.split("//")[1].split("/")[0]

        def admit(route):
            url = route.request.url
            if url.startswith((own, "data:", "blob:")):
                visit.requested.append(url)
                route.continue_()
            else:
                visit.foreign.append(url)
                route.abort()

        page.context.route("**/*", admit)
        page.on("pageerror", lambda error: visit.problems.append(f"page error: {error}"))
        page.on("console", lambda said: visit.problems.append(said.text) if said.type == "error" else None)
        page.on(
            "response",
            lambda got: visit.problems.append(f"{got.status} {got.url}") if got.status >= 400 else None,
        )
        page.goto(address, timeout=PATIENCE_MS)
        return visit

    return open_address


@pytest.fixture(scope="session", params=built_pages())
def opened(request, address, open_page):
    """Each page of the book in turn, opened once for all the tests that look at it, in a list of one."""
    visits = [open_page(address + request.param, request.param)]
    visits[0].scroll_through()
    yield visits
    visits[0].page.close()


@pytest.fixture
def visit(opened, open_page):
    """The open page. One that gets no frames is closed, named, and opened again: once for each test."""
    return drawn(opened, open_page)
