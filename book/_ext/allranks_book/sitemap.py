"""Which is the one address of a page, and which pages are there? Search engines ask both.

The same page is on hubs, on mirrors and on disks: it names the published one (`rel="canonical"`), and
sitemap.xml lists all. Their root is `html: baseurl` of `_config.yml`, or where GitHub Pages puts the book.
(sphinx-sitemap 2.9 lists only the pages that this build has written: its #13.)
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from .citing import address
from .repository import repository

SITEMAP = "sitemap.xml"
NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


def set_root(app, config) -> None:
    """Tell Sphinx where the book is published; it writes the canonical address into each page."""
    config.html_baseurl = config.html_baseurl or repository(config).pages


def sitemap(pages, config) -> str:
    """The list of the addresses of `pages`, in order (sitemaps.org)."""
    lines = (f"  <url><loc>{escape(address(page, config))}</loc></url>\n" for page in sorted(pages))
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="{NAMESPACE}">\n{"".join(lines)}</urlset>\n'
    )


def write_sitemap(app, exception) -> None:
    """List every page of the book, also those that this build has left as they were."""
    if not exception and app.builder.format == "html":
        Path(app.outdir, SITEMAP).write_text(sitemap(app.env.found_docs, app.config), encoding="utf-8")


def setup(app) -> None:
    """Know the root before the first page is written, and all pages after the last."""
    app.connect("config-inited", set_root)
    app.connect("build-finished", write_sitemap)
