"""How does the document become a PDF? Chromium prints it, and asks no other host for anything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import async_playwright

from printed.finish import page_numbers

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-gpu", "--no-first-run"]
SECONDS = 300  # for what a page does; for all of it, twice as many
SCREEN = {"viewport": {"width": 640, "height": 960}, "color_scheme": "light", "reduced_motion": "reduce"}
PAPER = {"prefer_css_page_size": True, "print_background": True}
PREPARE = Path(__file__).with_name("prepare.js")
HEADINGS = """() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
  .map(heading => heading.textContent.replace(/\\s+/g, " ").trim())"""
NUMBERS_ONLY = """numbers => {
  document.querySelectorAll("article, .ar-part").forEach(printed => printed.remove());
  for (const place of document.querySelectorAll(".ar-page-number"))
    place.textContent = numbers[place.dataset.page];
  document.body.classList.add("ar-numbers-only");
}"""


class Printed(NamedTuple):
    """The book, the page numbers of its contents on pages of their own, and every heading in order."""

    book: Path
    numbers: Path
    headings: list[str]


def print_to_pdf(document: Path) -> Printed:
    """Print an HTML file, tagged and with an outline, once what scripts draw is drawn.

    Chromium may leave `Page.printToPDF` without an answer for ever, with nothing to do (156, beside eight
    busy processes; earlier ones: puppeteer#7508). A browser that has not printed is closed; a second tries.
    """
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        raise SystemExit("printing needs a browser: `bash tools/browser.sh` finds or installs Chromium.")
    for browser in ("the first of two", "the second"):
        with contextlib.suppress(TimeoutError):
            return asyncio.run(asyncio.wait_for(print_with(executable, document), 2 * SECONDS))
        print(f"offline: Chromium has not printed in {2 * SECONDS} s and is closed ({browser})", flush=True)
    raise SystemExit(f"Chromium printed {document} in neither of two tries of {2 * SECONDS} s.")


async def print_with(executable: str, document: Path) -> Printed:
    """Print an HTML file with this browser."""
    as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    book, numbers = document.with_name("book.pdf"), document.with_name("numbers.pdf")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=[*QUIET, *as_root])
        page = await browser.new_page(**SCREEN)
        page.set_default_timeout(SECONDS * 1000)
        foreign = []
        page.on("request", lambda asked: foreign.append(asked.url) if is_foreign(asked.url) else None)
        await page.route(is_foreign, lambda route: route.abort())
        await page.emulate_media(media="screen")  # the rules for printing one page are not meant for a book
        await page.goto(document.as_uri())
        await page.evaluate(PREPARE.read_text(encoding="utf-8"))
        headings = await page.evaluate(HEADINGS)
        await page.pdf(path=book, tagged=True, outline=True, **PAPER)
        await page.evaluate(NUMBERS_ONLY, page_numbers(book))
        await page.pdf(path=numbers, **PAPER)
        await browser.close()
    if foreign:
        raise SystemExit(f"the printed book asks another host: {', '.join(foreign)}")
    return Printed(book, numbers, headings)


def is_foreign(url: str) -> bool:
    """Whether an address is anywhere but on this disk."""
    return not url.startswith(("file:", "data:", "blob:"))
