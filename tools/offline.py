#!/usr/bin/env python
"""Make the whole book a PDF and a zip archive, from its built pages, and link them from the first page.

Both are written into _build/html. It takes about four minutes and a browser; the book is complete without it.
With --unless-passed, no PDF is made if all that it is made of is what its tests last passed on.
"""

import argparse
import sys
import time
from pathlib import Path

import stamps
from archive import write_archive
from downloads import ARCHIVE, PDF, offer
from printed.document import about, whole_book
from printed.finish import finish
from printed.press import print_to_pdf

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
DRAFT = ROOT / "_build" / "printed" / "book.html"


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--unless-passed", action="store_true", help="no PDF if it would be one that passed")
    unless_passed = asked.parse_args().unless_passed
    if not (SITE / "searchindex.js").is_file():
        sys.exit("there is no built book in _build/html; `make book` builds it")
    start = time.monotonic()
    pages = None
    if unless_passed and stamps.unchanged("pdf"):
        (SITE / PDF).unlink(missing_ok=True)  # of another state
        print("offline: no PDF: all that it is made of is what it passed on (tests/stamps.json)")
    else:
        pages = make_pdf(start)
    write_archive(SITE, SITE / ARCHIVE)
    offer(SITE, pages)
    print(f"offline: {ARCHIVE}, {(SITE / ARCHIVE).stat().st_size / 1e6:.1f} MB")
    print(f"offline: in _build/html after {time.monotonic() - start:.0f} s")


def make_pdf(start):
    """Print the book; the result is its number of pages."""
    DRAFT.parent.mkdir(exist_ok=True)
    DRAFT.write_text(whole_book(SITE), encoding="utf-8")
    print(f"offline: one document of all pages, {time.monotonic() - start:.0f} s", flush=True)
    printed = print_to_pdf(DRAFT)
    print(f"offline: printed, {time.monotonic() - start:.0f} s", flush=True)
    pages = finish(printed.book, printed.numbers, printed.headings, about(), SITE / PDF)
    print(f"offline: {PDF}, {pages} pages, {(SITE / PDF).stat().st_size / 1e6:.1f} MB", flush=True)
    return pages


if __name__ == "__main__":
    main()
