"""Show all explorers as thumbnails, and give each a page of its own that other sites can embed.

A thumbnail is the explorer's first picture as a file, light and dark; a browser loads what is in sight.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from docutils import nodes

from allranks import explorers
from allranks.explorers.stories.frames import frame
from allranks_book.explorers import SCRIPTS, figure_html

PAGE = "notebooks/reference/explorers"
STYLE = "gallery.css"
NAMED = re.compile(r'<figure class="ar-explorer" id="explorer-(\w+)"')
PALETTE = re.compile(r"--ar-([\w-]+): (#\w+);")
VARIABLE = re.compile(r"var\(--ar-([\w-]+),#\w+\)")


def add_gallery(app, doctree, docname) -> None:
    """Put the gallery below the first paragraph of the page of all explorers."""
    if docname != PAGE or app.builder.format != "html":
        return
    names = [found for each in doctree.findall(nodes.raw) for found in NAMED.findall(each.astext())]
    first = next(doctree.findall(nodes.paragraph))
    gallery = nodes.raw(text=gallery_html(names, "../" * docname.count("/")), format="html")
    first.parent.insert(first.parent.index(first) + 1, gallery)


def gallery_html(names: list[str], root: str) -> str:
    """A link with a thumbnail for each explorer."""
    cards = "".join(card_html(name, root) for name in names)
    return f'<nav class="ar-gallery" aria-label="All explorers">{cards}</nav>'


def card_html(name: str, root: str) -> str:
    """The explorer's picture, what it asks, and what it is called; the picture is named by its title."""
    question, title = html.escape(frame(name).question), html.escape(explorers.explorer(name).TITLE)
    width, height = re.search(r'width="(\S+)" height="(\S+)"', explorers.draw(name)["svg"]).groups()
    shown = "".join(
        f'<img class="only-{theme}" src="{root}_static/explorers/{name}-{theme}.svg" alt="{title}"'
        f' width="{width}" height="{height}" loading="lazy" decoding="async">'
        for theme in ("light", "dark")
    )
    return (
        f'<a href="#explorer-{name}"><span class="ar-thumbnail">{shown}</span>'
        f'<b>{question}</b><span aria-hidden="true">{title}</span></a>'
    )


def palettes(folder: Path) -> dict[str, dict[str, str]]:
    """The values of the palette's colours, light and dark."""
    light, dark = (folder / "palette.css").read_text(encoding="utf-8").split("@media not print")
    return {"light": dict(PALETTE.findall(light)), "dark": dict(PALETTE.findall(dark))}


def embedded_html(name: str) -> str:
    """A page with one explorer, for a frame in another page."""
    title = html.escape(explorers.explorer(name).TITLE)
    sheets = "".join(f'<link rel="stylesheet" href="../{each}.css">' for each in ("palette", "explorers"))
    scripts = "".join(f'<script defer src="../{each}"></script>' for each in SCRIPTS)
    dark = "matchMedia('(prefers-color-scheme: dark)').matches"
    return (
        '<!doctype html><html lang="en" data-theme="light" data-content_root="../../"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">'
        f"<title>{title} · All Ranks</title>"
        f"<script>if({dark})document.documentElement.dataset.theme='dark'</script>"
        f"{sheets}{scripts}<style>:root{{--pst-font-family-heading:system-ui,sans-serif}}"
        "html{background:var(--ar-paper);color:var(--ar-ink);font-family:system-ui,sans-serif}"
        "body{margin:0 auto;max-width:52rem;padding:0 1rem}h1{font-size:1rem;margin:1rem 0 0}"
        "h1>a{color:var(--ar-accent)}.ar-title{display:none}</style>"
        f'<main><h1>{title}, from <a href="../../{PAGE}.html#explorer-{name}">All Ranks</a></h1>'
        f"{figure_html(name, {}, explorers.draw(name)['svg'])}</main>"
    )


def write_gallery(app, exception) -> None:
    """Write the thumbnails and the pages to embed."""
    if exception or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    (static / "explorers").mkdir(exist_ok=True)
    colours = palettes(static)
    for name in explorers.NAMES:
        picture = explorers.draw(name)["svg"]
        for theme, values in colours.items():
            drawn = VARIABLE.sub(lambda found, values=values: values[found[1]], picture)
            (static / "explorers" / f"{name}-{theme}.svg").write_text(drawn, encoding="utf-8")
        (static / "explorers" / f"{name}.html").write_text(embedded_html(name), encoding="utf-8")


def add_style(app, pagename, templatename, context, doctree) -> None:
    """Load the style where the gallery is."""
    if pagename == PAGE:
        app.add_css_file(STYLE)


def setup(app) -> None:
    """Add the gallery to its page, and its files to the book."""
    app.connect("doctree-resolved", add_gallery)
    app.connect("html-page-context", add_style)
    app.connect("build-finished", write_gallery)
