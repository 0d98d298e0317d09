"""What the browser tests know of the built book: where it is, its pages, and a page that is open."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
SITE = ROOT / "_build" / "html"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"


def built_pages() -> list[str]:
    """Every page of the book, as a path below its root; the first page's redirect is no page."""
    if not SITE.is_dir():
        return ["index.html"]
    pages = (page.relative_to(SITE).as_posix() for page in SITE.rglob("*.html"))
    return sorted(page for page in pages if page != "index.html" and not page.startswith("_static/"))


@dataclass
class Visit:
    """One page, open in the browser, and what happened since it was opened."""

    name: str
    page: Page
    requested: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def scroll_through(self) -> None:
        """Bring every part of the page into view once, so that what loads late loads."""
        for step in range(0, self.page.evaluate("document.documentElement.scrollHeight"), 600):
            self.page.evaluate(f"window.scrollTo(0, {step})")
            self.page.wait_for_timeout(20)
        self.page.wait_for_load_state("networkidle")
