"""What the browser tests know of the built book: where it is, its pages, and a page that is open."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
SITE = ROOT / "_build" / "html"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
# A task after a frame: by then the observers of what comes into view have been told.
SCROLL_THROUGH = """async () => {
  for (let top = 0; top < document.documentElement.scrollHeight; top += 600) {
    scrollTo(0, top);
    await new Promise(done => { requestAnimationFrame(() => setTimeout(done)); setTimeout(done, 100); });
  }
}"""
# Chromium's compositor can lose the end of a raster task, on a busy machine, while a worker of the page
# compiles (156, headless and not): the page then gets no frame any more, and no test of it can pass.
GETS_FRAMES = """patience => new Promise(done => {
  requestAnimationFrame(() => requestAnimationFrame(() => done(true)));
  setTimeout(() => done(false), patience);
})"""
PATIENCE_MS = 30_000  # for a frame


# By the second frame the observers of sizes have been told.
FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def built_pages() -> list[str]:
    """Every page of the book, as a path below its root; one that leads on to another is none."""
    if not SITE.is_dir():
        return ["index.html"]
    found = {page.relative_to(SITE).as_posix(): page for page in SITE.rglob("*.html")}
    return sorted(
        name for name, page in found.items() if not name.startswith("_static/") and not leads_on(page)
    )


def leads_on(page: Path) -> bool:
    """Whether the page only sends its reader to another."""
    return 'http-equiv="refresh"' in page.read_text(encoding="utf-8").lower()


@dataclass
class Visit:
    """One page, open in the browser, and what happened since it was opened."""

    name: str
    page: Page
    requested: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    patience: int = PATIENCE_MS

    def scroll_through(self) -> None:
        """Bring every part of the page into view once; what then loads late may still be on its way."""
        self.page.evaluate(SCROLL_THROUGH)
        self.page.wait_for_load_state("networkidle")  # true for ever once it was

    def gets_frames(self) -> bool:
        """False if the browser does not draw this page any more."""
        return self.page.evaluate(GETS_FRAMES, self.patience)


STUCK = []  # names of pages that the browser did not draw any more


def drawn(visits, open_page, **options):
    """The open page in a list of one; if the browser does not draw it any more, put there one that is.

    `options` are those with which the page was opened.
    """
    stuck = visits[0]
    if not stuck.gets_frames():
        STUCK.append(stuck.name)
        address = stuck.page.url
        stuck.page.close()
        visits[0] = open_page(address, stuck.name, **options)
        visits[0].scroll_through()
        assert visits[0].gets_frames(), "opened again, the page gets no frames either"
    return visits[0]
