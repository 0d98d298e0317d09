"""Where does the first page offer the book as a PDF and as an archive, and how large are they?

The page holds the comment `<!-- downloads -->`. What stands there is written after the build, since both
files are made from the built pages; without them the page says nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

FIRST_PAGE = "book/index.html"
PDF, ARCHIVE = "all-ranks.pdf", "all-ranks.zip"
START, END = "<!-- downloads -->", "<!-- /downloads -->"
PLACE = re.compile(rf"{START}(?:.*?{END})?", re.DOTALL)


def offer(site: Path, pages: int | None) -> None:
    """Write the links into the first page, in the place of those of an earlier time.

    `pages` is the number of pages of the PDF, or None if it was not made.
    """
    megabytes = {name: (site / name).stat().st_size / 1e6 for name in (PDF, ARCHIVE) if name != PDF or pages}
    pdf = (
        f'<a href="../{PDF}">the book as a PDF</a>, {pages} pages, {megabytes[PDF]:.1f} MB; ' if pages else ""
    )
    links = (
        f'<p class="ar-downloads">Without a network: {pdf}'
        f'<a href="../{ARCHIVE}">these pages as a zip archive</a>, {megabytes[ARCHIVE]:.1f} MB, '
        "with the notebooks, and figures that answer. "
        "Unpack it and open <code>index.html</code>.</p>"
    )
    page = site / FIRST_PAGE
    page.write_text(filled(page.read_text(encoding="utf-8"), links), encoding="utf-8")


def filled(text: str, said: str) -> str:
    """The HTML of the first page with `said` in its place for downloads."""
    text, places = PLACE.subn(lambda _: f"{START}{said}{END}", text)
    if places != 1:
        raise ValueError(
            f"{FIRST_PAGE} has {places} places {START}, and it should have one: "
            "write that comment into book/index.md, on a line of its own, and build the book again."
        )
    return text
