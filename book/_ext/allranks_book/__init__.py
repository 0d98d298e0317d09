"""What the pages of All Ranks need beyond Jupyter Book, one module per concern."""

from __future__ import annotations

from allranks_book import (
    descriptions,
    explorers,
    figures,
    formulas,
    icons,
    landing,
    pages,
    permalinks,
    reading,
    terms,
)


def setup(app) -> dict:
    """Register each concern with Sphinx."""
    for concern in (
        descriptions,
        explorers,
        figures,
        formulas,
        icons,
        landing,
        pages,
        permalinks,
        reading,
        terms,
    ):
        concern.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
