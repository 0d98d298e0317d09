#!/usr/bin/env python
"""Compare the built book with every address that was ever published: `tools/addresses.py check|add`.

`check` names each address of `tests/published.txt` that the book in _build/html no longer has, and each new
one that is not in the list. `add` writes the new ones into it; it never takes a line out.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from allranks_book.addresses import offered, redirects  # noqa: E402

SITE = ROOT / "_build" / "html"
PUBLISHED = ROOT / "tests" / "published.txt"
LOST = """{count} published addresses lead nowhere:
{addresses}
A heading was worded anew: write ({anchor})= on a line above it, which keeps the old address.
A page or a section moved, or a cell has another name: say where it is now in book/redirects.yaml.
The address was never on the main branch: take its line out of tests/published.txt."""
NEW = """{count} addresses are new:
{addresses}
If these names are to stay for good, build the book and run `.venv/bin/python tools/addresses.py add`."""


def published(file):
    """The addresses of the list."""
    return set(file.read_text(encoding="utf-8").split()) if file.exists() else set()


def leads_to(address, moved):
    """Where an address leads once its page has moved: the page that stands there keeps the anchor."""
    page, mark, anchor = address.partition("#")
    return f"{moved[page]}{mark}{anchor}" if page in moved else address


def complaints(listed, found, moved):
    """What is wrong between list and book, and what to do; empty if nothing is. `moved`: old page → new."""
    said = []
    lost = {address for address in listed if not {address, leads_to(address, moved)} & found}
    for addresses, words in ((lost, LOST), (found - listed, NEW)):
        if addresses:
            shown = "\n".join(f"  {address}" for address in sorted(addresses))
            anchor = sorted(addresses)[0].partition("#")[2] or "old-anchor"
            said.append(words.format(count=len(addresses), addresses=shown, anchor=anchor))
    return "\n\n".join(said)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["check", "add"])
    what = parser.parse_args().what
    found = offered(SITE)
    if not found:
        sys.exit("There is no built book in _build/html: build it with `make book`.")
    listed = published(PUBLISHED)
    if what == "add":
        PUBLISHED.write_text("".join(f"{address}\n" for address in sorted(listed | found)), encoding="utf-8")
        print(f"{len(found - listed)} addresses added, {len(listed | found)} in tests/published.txt")
        listed |= found
    if said := complaints(listed, found, redirects()):
        sys.exit(said)


if __name__ == "__main__":
    main()
