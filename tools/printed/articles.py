"""What of a built page is printed, and how do its links find their places in one long document?

The article is taken out of its page. What needs a reader's hand goes (forms, buttons, the picture for a
phone), what waits behind a click is opened, every id begins with the page's name, and links to pages become
links to ids.
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag

from printed.contents import anchor

NOT_PRINTED = (
    ".headerlink, .instructor, .ar-cite, .ar-downloads, .ar-gallery, .ar-narrow, .ar-reading-place, "
    "details.ar-program, .ar-message-steps, .ar-deeper > summary, .katex-mathml, button, noscript, "
    "script:not([type='application/json'])"
)
NAMES = ("id", "for", "aria-labelledby", "aria-describedby", "aria-controls")
FILES = ("src", "data")
PAINTED = re.compile(r"url\(#([^)]+)\)")


class Article(NamedTuple):
    """A printable page: its name, its title, what it claims or is about (HTML), and its HTML."""

    page: str
    title: str
    about: str
    html: str


def article(site: Path, page: str, pages: set[str], lower: int) -> Article:
    """The page of the built site in one document that holds `pages`, its headings `lower` levels down."""
    soup = BeautifulSoup((site / f"{page}.html").read_text(encoding="utf-8"), "html.parser")
    found = soup.select_one("article.bd-article")
    if found is None or found.h1 is None:
        raise SystemExit(f"{page}.html has no article with a heading: has the theme changed?")
    show_settings(soup, found)
    name_formulas(found)
    for unprinted in found.select(NOT_PRINTED):
        unprinted.decompose()
    for closed in found.select("details"):
        closed["open"] = ""
    links(found, page, pages)
    own_names(found, page)
    title = found.h1.get_text(" ", strip=True)
    mark_headings(found, lower)
    if claim := found.select_one(".admonition.claim > p:not(.admonition-title)"):
        about = without_names(claim)
    else:
        about = html.escape(soup.select_one("meta[name=description]")["content"])
    return Article(page, title, about, found.decode_contents())


def show_settings(soup: BeautifulSoup, found: Tag) -> None:
    """Put the settings of an explorer or a program, which a form would show, into words in its place.

    An explorer loses its label, which in a PDF would stand in place of all that the figure holds.
    """
    for figure in found.select(".ar-explorer[aria-labelledby]"):
        del figure["aria-labelledby"]
    for form in found.select(".ar-explorer > form"):
        controls = form.select(".ar-control:has(> label)")
        form.replace_with(in_words(soup, [(each.label.get_text(strip=True), each) for each in controls]))
    for form in found.select(".ar-run-bar"):  # how many ranks it runs on, its caption says
        labels = form.select("label:has(option[selected])")
        form.replace_with(in_words(soup, [(str(each.contents[0]).strip(), each) for each in labels]))


def in_words(soup: BeautifulSoup, settings: list[tuple[str, Tag]]) -> Tag:
    """A line of names, each with what its control says."""
    shown = soup.new_tag("p", attrs={"class": "ar-shown"})
    for name, control in settings:
        shown.append(soup.new_tag("span"))
        shown.contents[-1].append(f"{name} ")
        shown.contents[-1].append(soup.new_tag("b", string=setting(control)))
    return shown


def setting(control: Tag) -> str:
    """What a control says in the page as it was built."""
    if control.select_one("select"):
        return control.select_one("option[selected]").get_text(strip=True)
    if control.select_one("[type=checkbox]"):
        return "yes" if control.select_one("[checked]") else "no"
    return control.output.get_text(strip=True)


def name_formulas(found: Tag) -> None:
    """Name each formula by its TeX, for those who listen: print has no MathML."""
    for formula in found.select(".katex"):
        formula["role"] = "img"
        formula["aria-label"] = formula.annotation.get_text()
        formula.select_one(".katex-html").attrs.pop("aria-hidden", None)


def links(found: Tag, page: str, pages: set[str]) -> None:
    """Lead links to places in the document, pictures to the site; any other link keeps its words only."""
    folder = posixpath.dirname(page)
    for link in found.select("[href]"):
        target = urlsplit(link["href"])
        if target.scheme or target.netloc:
            continue
        path = (
            posixpath.normpath(posixpath.join(folder, unquote(target.path)))
            if target.path
            else f"{page}.html"
        )
        named = path.removesuffix(".html")
        if named in pages and path.endswith(".html"):
            link["href"] = f"#{anchor(named, unquote(target.fragment))}"
        else:
            del link["href"]
    for loaded in found.select(", ".join(f"[{name}]" for name in FILES)):
        for name in set(FILES) & set(loaded.attrs):
            if not urlsplit(loaded[name]).scheme:
                loaded[name] = posixpath.join(
                    "..", "html", posixpath.normpath(posixpath.join(folder, loaded[name]))
                )


def own_names(found: Tag, page: str) -> None:
    """Begin every id, and every reference to one, with the page's name."""
    known = {named["id"] for named in found.select("[id]")}
    for tag in found.find_all(True):
        for name, value in tag.attrs.items():
            if name in NAMES:
                tag[name] = " ".join(anchor(page, one) for one in value.split())
            elif isinstance(value, str) and "url(#" in value:
                tag[name] = PAINTED.sub(
                    lambda use: f"url(#{anchor(page, use[1])})" if use[1] in known else use[0], value
                )


def mark_headings(found: Tag, lower: int) -> None:
    """Lower the headings, since parts stand above chapters; their look goes by their class."""
    for heading in found.find_all(re.compile("^h[1-6]$")):
        level = int(heading.name[1])
        heading["class"] = f"ar-h{level}"
        heading.name = f"h{min(level + lower, 6)}"


def without_names(tag: Tag) -> str:
    """The inner HTML of a tag, to be shown a second time: without ids and citations."""
    copy = BeautifulSoup(tag.decode_contents(), "html.parser")
    for citation in copy.select(".bibtex-citation"):
        citation.decompose()
    for named in copy.select("[id]"):
        del named["id"]
    return re.sub(r"\s+([.,;:])", r"\1", str(copy).strip())
