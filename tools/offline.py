#!/usr/bin/env python
"""Make the whole book a PDF and a zip archive, from its built pages, and link them from the first page.

Both are written into _build/html. It takes about two minutes and a browser; the book is complete without it.
"""

import sys
import time
from pathlib import Path

from archive import write_archive
from downloads import ARCHIVE, PDF, offer
from printed.document import about, whole_book
from printed.finish import finish
from printed.press import print_to_pdf

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
DRAFT = ROOT / "_build" / "printed" / "book.html"


def main():
    if not (SITE / "searchindex.js").is_file():
        sys.exit("there is no built book in _build/html; `make book` builds it")
    start = time.monotonic()
    DRAFT.parent.mkdir(exist_ok=True)
    DRAFT.write_text(whole_book(SITE), encoding="utf-8")
    print(f"offline: one document of all pages, {time.monotonic() - start:.0f} s", flush=True)
    printed = print_to_pdf(DRAFT)
    print(f"offline: printed, {time.monotonic() - start:.0f} s", flush=True)
    pages = finish(printed.book, printed.numbers, printed.headings, about(), SITE / PDF)
    write_archive(SITE, SITE / ARCHIVE)
    offer(SITE, pages)
    for name in (PDF, ARCHIVE):
        print(f"offline: _build/html/{name}, {(SITE / name).stat().st_size / 1e6:.1f} MB")
    print(f"offline: {pages} pages, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
