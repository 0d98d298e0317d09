"""What does Chromium leave to do? Numbers in the contents, clean titles, who made it, half of the size."""

from __future__ import annotations

from pathlib import Path

import pikepdf
from pikepdf import Dictionary, Name

BEFORE_CONTENTS = 2  # the title page and its back


def page_numbers(pdf: Path) -> dict[str, int]:
    """Id → the number of the page that it is on, counted from 1."""
    with pikepdf.open(pdf) as printed:
        place = {page.objgen: number for number, page in enumerate(printed.pages, 1)}
        return {name.removeprefix("/"): place[to[0].objgen] for name, to in printed.Root.Dests.items()}


def finish(book: Path, numbers: Path, headings: list[str], about, target: Path) -> int:
    """Write the book that Chromium printed as `target`; the result is its number of pages."""
    with pikepdf.open(book) as pdf, pikepdf.open(numbers) as numbered:
        first_page = min(page_numbers(book).values())
        if len(numbered.pages) != first_page - 1:
            raise SystemExit(
                f"{first_page - 1} pages come before the first chapter, and {len(numbered.pages)} when the "
                "contents have page numbers: give .ar-page-number in pdf.css the width of a number."
            )
        for place in range(BEFORE_CONTENTS, len(numbered.pages)):
            pdf.pages[place].add_overlay(numbered.pages[place])
        clean_outline(pdf, headings)
        describe(pdf, about)
        pdf.save(target, object_stream_mode=pikepdf.ObjectStreamMode.generate, compress_streams=True)
        return len(pdf.pages)


def clean_outline(pdf: pikepdf.Pdf, headings: list[str]) -> None:
    """Give each bookmark the text of its heading: Chromium doubles that of some."""
    titles = iter(headings)

    def name(items) -> int:
        named = 0
        for item in items:
            item.title = next(titles, "")
            named += 1 + name(item.children)
        return named

    with pdf.open_outline() as outline:
        named = name(outline.root)
    if named != len(headings):
        raise SystemExit(f"the document has {len(headings)} headings, and its outline {named} entries.")


def describe(pdf: pikepdf.Pdf, about) -> None:
    """Say what the book is and who made it; a reader opens it with its outline."""
    with pdf.open_metadata(set_pikepdf_as_editor=False) as metadata:
        metadata["dc:title"] = f"{about.title}: {about.subtitle}"
        metadata["dc:creator"] = [about.authors]
        metadata["dc:language"] = {"en"}
        metadata["dc:rights"] = "Text and figures CC BY 4.0, code Apache 2.0"
        metadata["dc:source"] = about.source
        metadata["pdf:Keywords"] = ", ".join(about.keywords)
    pdf.docinfo["/Creator"] = f"{about.title} {about.version}"
    pdf.Root.Lang = pikepdf.String("en")
    pdf.Root.PageMode = Name.UseOutlines
    pdf.Root.ViewerPreferences = Dictionary(DisplayDocTitle=True)
