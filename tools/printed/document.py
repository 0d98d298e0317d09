"""What stands in the one document: title page, licence, contents, and every article under its part.

(Sphinx's builder for that, singlehtml, keeps the ids of the pages as they are: on this book, 678 ids stood in
several places, and a fifth of the links inside led to one of those.)
"""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import matplotlib
import yaml

from printed.articles import Article, article
from printed.contents import ROOT, Part, anchor, parts

STYLE_SHEET = re.compile(r'<link [^>]*href="(?:\.\./)*(_static/[^"?]+\.css)[^"]*"')
NOT_FOR_PRINT = ("theme.css", "togglebutton.css", "copybutton.css")
SCRIPTS = ("plotly_figures.js",)


class About(NamedTuple):
    """What the title page says."""

    title: str
    subtitle: str
    authors: str
    version: str
    source: str
    built: str
    keywords: list[str]


def about() -> About:
    """Title, authors and version as CITATION.cff has them, and the commit where git can tell it."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    title, _, subtitle = cited["title"].partition(": ")
    asked = ["git", "log", "-1", "--format=%h of %cs"]
    try:
        commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = ""
    authors = ", ".join(
        author.get("name") or f"{author['given-names']} {author['family-names']}"
        for author in cited["authors"]
    )
    return About(
        title, subtitle, authors, str(cited["version"]), cited["repository-code"], commit, cited["keywords"]
    )


def whole_book(site: Path) -> str:
    """The document; its contents leave room for page numbers, which nobody knows before it is printed."""
    contents = parts()
    names = [page for part in contents for page in part.pages]
    articles = {
        page: article(site, page, set(names), lower=1 if part.caption else 0)
        for part in contents
        for page in part.pages
    }
    body = "".join(
        [
            front(about()),
            table_of_contents(contents, articles),
            *(part_html(part, articles) for part in contents),
        ]
    )
    require_places(body)
    return f"{head(site, names, articles)}<body>{body}</body></html>"


def head(site: Path, names: list[str], articles: dict[str, Article]) -> str:
    """Styles in the order of the pages, fonts, a running head for each page, the script of figures."""
    sheets: dict[str, None] = {}
    for page in names:
        text = (site / f"{page}.html").read_text(encoding="utf-8").partition("</head>")[0]
        sheets.update(dict.fromkeys(STYLE_SHEET.findall(text)))
    linked = "".join(
        f'<link rel="stylesheet" href="../html/{sheet}">'
        for sheet in sheets
        if not sheet.endswith(NOT_FOR_PRINT)
    )
    style = (Path(__file__).parent / "pdf.css").read_text(encoding="utf-8")
    running = "".join(
        f'@page page-{place} {{ @top-left {{ content: "{css_text(articles[page].title)}" }} }}'
        f"#{css_name(anchor(page))} {{ page: page-{place} }}"
        for place, page in enumerate(names)
    )
    scripts = "".join(f'<script defer src="../html/_static/{script}"></script>' for script in SCRIPTS)
    book = about()
    return (
        '<!doctype html><html lang="en" data-theme="light" data-content_root="../html/">'
        '<head><meta charset="utf-8">'
        f"<title>{html.escape(f'{book.title}: {book.subtitle}')}</title>{linked}"
        f"<style>{fonts()}{style}{running}</style>{scripts}</head>"
    )


def fonts() -> str:
    """The same fonts on every machine: Source Serif and Sans from node_modules, DejaVu from matplotlib."""
    faces = []
    for family, folder in (("Book Serif", "source-serif-4"), ("Book Sans", "source-sans-3")):
        files = ROOT / "node_modules" / "@fontsource" / folder / "files"
        for script, span in unicode_ranges(files.parent).items():
            for weight in (400, 600):
                for style in ("normal", "italic"):
                    file = files / f"{folder}-{script}-{weight}-{style}.woff2"
                    faces.append((family, weight, style, file, span))
    dejavu = Path(matplotlib.get_data_path(), "fonts", "ttf")
    for family, name in (("Book Mono", "DejaVuSansMono"), ("Book Signs", "DejaVuSans")):
        for weight, suffix in ((400, ""), (600, "-Bold")):
            faces.append((family, weight, "normal", dejavu / f"{name}{suffix}.ttf", "U+0-10FFFF"))
    missing = [str(face[3]) for face in faces if not face[3].exists()]
    if missing:
        raise SystemExit(f"{missing[0]} is missing: run `make setup`.")
    return "".join(
        f'@font-face {{ font-family: "{family}"; font-weight: {weight}; font-style: {style};'
        f' src: url("{file.as_uri()}"); unicode-range: {span} }}'
        for family, weight, style, file, span in faces
    )


def unicode_ranges(package: Path) -> dict[str, str]:
    """Script → the code points that the files of a font package hold for it."""
    stored = yaml.safe_load((package / "unicode.json").read_text(encoding="utf-8"))
    return {script: stored[script] for script in ("latin", "latin-ext", "greek")}


def css_text(text: str) -> str:
    """A text as it may stand between the double quotes of CSS."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def css_name(name: str) -> str:
    """A name as it may stand in a selector."""
    return re.sub(r"[^\w-]", lambda sign: f"\\{sign[0]}", name)


# ---- the pages before the first chapter ----


def front(book: About) -> str:
    """The title page, and on its back the licence, how to cite, and what print leaves out."""
    ring = Path(__file__).with_name("title.svg").read_text(encoding="utf-8")
    state = f"Version {book.version}" + (f", commit {book.built}" if book.built else "")
    who = html.escape(book.authors)
    return (
        f'<section class="ar-front"><p class="ar-name">{html.escape(book.title)}</p>'
        f'<p class="ar-subtitle">{html.escape(book.subtitle[:1].upper() + book.subtitle[1:])}</p>{ring}'
        f'<p class="ar-authors">{who}</p><p>{html.escape(state)}</p></section>'
        '<section class="ar-back">'
        f"<p>© 2026 {who}. Text and figures are licensed under "
        '<a href="https://creativecommons.org/licenses/by/4.0/">CC BY 4.0</a>: copy, change and teach them, '
        "and say where they come from. Code is licensed under "
        '<a href="https://www.apache.org/licenses/LICENSE-2.0">Apache 2.0</a>.</p>'
        f"<p>Cite as: {who[:1].upper() + who[1:]}. <i>{html.escape(f'{book.title}: {book.subtitle}')}</i>. "
        f'Version {book.version}, 2026. <a href="{book.source}">{book.source}</a></p>'
        "<p>This is the book’s web edition on paper. "
        "A figure with controls shows its first picture, and above it the settings it was drawn with. "
        "Hints and solutions are open. The chapters leave out their notes for lecturers. "
        "Links lead to pages of this document, or to the web.</p>"
        "<p>Set in Source Serif and Source Sans by Adobe, DejaVu Sans Mono, and the fonts of KaTeX.</p>"
        "</section>"
    )


def table_of_contents(contents: list[Part], articles: dict[str, Article]) -> str:
    """Parts and chapters, each a link with room for its page number."""
    rows = []
    for part in contents:
        if part.caption:
            rows.append(f'<p class="ar-caption">{html.escape(part.caption)}</p>')
        rows += [
            f'<p><a href="#{anchor(page)}">{html.escape(articles[page].title)}</a>'
            f'<span class="ar-page-number" data-page="{anchor(page)}"></span></p>'
            for page in part.pages
        ]
    return f'<nav class="ar-contents" id="contents"><h1>Contents</h1>{"".join(rows)}</nav>'


def part_html(part: Part, articles: dict[str, Article]) -> str:
    """A part: a page that says what its chapters claim, then the chapters."""
    opening = ""
    if part.caption:
        shown = [articles[page] for page in part.pages]
        rows = "".join(
            f'<dt><a href="#{anchor(each.page)}">{html.escape(each.title)}</a></dt><dd>{each.about}</dd>'
            for each in shown
        )
        opening = f'<section class="ar-part"><h1>{html.escape(part.caption)}</h1><dl>{rows}</dl></section>'
    return opening + "".join(
        f'<article class="bd-article" id="{anchor(page)}">{articles[page].html}</article>'
        for page in part.pages
    )


def require_places(body: str) -> None:
    """Every link inside the document leads to an id in it."""
    ids = set(re.findall(r'\bid="([^"]*)"', body))
    lost = sorted({html.unescape(link) for link in re.findall(r'\bhref="#([^"]*)"', body)} - ids)
    if lost:
        raise SystemExit(f"these links lead to no place in the printed book: {', '.join(lost)}")
