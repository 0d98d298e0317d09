"""What the pages of All Ranks need beyond Jupyter Book, one module per concern."""

from __future__ import annotations

from importlib import import_module

CONCERNS = [
    "changes",
    "citing",
    "code_lines",
    "deeper",
    "descriptions",
    "devices",
    "explorers",
    "figures",
    "formulas",
    "gallery",
    "icons",
    "images",
    "imports",
    "instructors",
    "landing",
    "lecture",
    "ledger",
    "opening",
    "pages",
    "permalinks",
    "ranks_in_page",
    "reading",
    "scripts",
    "search",
    "setting",
    "sitemap",
    "styles",
    "terms",
]


def setup(app) -> dict:
    """Register each concern with Sphinx."""
    for concern in CONCERNS:
        import_module(f"allranks_book.{concern}").setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
