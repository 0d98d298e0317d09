"""Every link inside the book leads to something that exists, and each page has one published address."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
import yaml
from allranks_book.repository import Repository
from built_book import ROOT, built_pages

PUBLISHED = Repository(**yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]).pages


@cache
def links_of(page: Path) -> Links:
    """What `page` links to and offers; each page is read once."""
    return Links(page)


class Links(HTMLParser):
    """What a page links to or loads, and the anchors it offers."""

    def __init__(self, page: Path):
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        """Collect `href`, `src` and `id`."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.add(value)
            elif name == "id":
                self.anchors.add(value)


def dead_links(page: Path, site: Path) -> list[str]:
    """The internal links of a page that lead nowhere."""
    dead = []
    links = links_of(page)
    for target in sorted(links.targets):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not file.is_file() or not file.is_relative_to(site):
            dead.append(target)
        elif parts.fragment and file.suffix == ".html":
            anchors = links.anchors if file == page else links_of(file).anchors
            if unquote(parts.fragment) not in anchors:
                dead.append(target)
    return dead


@pytest.mark.parametrize("name", [*built_pages(), "index.html"])
def test_no_link_is_dead(name, site):
    assert dead_links(site / name, site) == []


@pytest.mark.parametrize("name", built_pages())
def test_a_page_names_its_published_address(name, site):
    text = (site / name).read_text(encoding="utf-8")
    assert re.findall(r'<link rel="canonical" href="([^"]*)"', text) == [f"{PUBLISHED}/{name}"]


def test_the_sitemap_lists_every_page(site):
    places = ElementTree.parse(site / "sitemap.xml").findall("{*}url/{*}loc")
    listed = [place.text.removeprefix(f"{PUBLISHED}/") for place in places]
    assert listed == [name for name in built_pages() if name != "search.html"]
