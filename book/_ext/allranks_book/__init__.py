"""What the pages of All Ranks need beyond Jupyter Book, one module per concern."""

from __future__ import annotations

from importlib import import_module

CONCERNS = [
    "changes",  # the last change of each page
    "citing",  # how to cite a page
    "code_lines",  # long lines of code on a phone
    "deeper",  # sections that a page folds
    "descriptions",  # what search engines and shared links say
    "devices",  # the tables of hardware
    "explorers",  # explorers without a kernel
    "figures",  # figures, captions and their texts
    "formulas",  # formulas as HTML
    "gallery",  # all explorers, and a page for each
    "icons",  # the few icons
    "images",  # small pictures that shift nothing
    "imports",  # imports and the code of openings, folded
    "instructors",  # the pages for lecturers
    "landing",  # the first page
    "lecture",  # pages as slides
    "ledger",  # published numbers, and links to them
    "opening",  # the menu that leads to the notebook and its source
    "pages",  # what is wrong in the theme's HTML
    "permalinks",  # addresses of figures, formulas and outputs
    "ranks_in_page",  # cells that run in the page
    "reading",  # the reading list
    "scripts",  # which scripts, and when
    "search",  # the index of the search
    "setting",  # links that set an explorer
    "sitemap",  # addresses for search engines
    "styles",  # one style sheet a page
    "terms",  # glossary entries beside their words
]


def setup(app) -> dict:
    """Register each concern with Sphinx."""
    for concern in CONCERNS:
        import_module(f"allranks_book.{concern}").setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
