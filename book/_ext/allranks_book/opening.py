"""How does a reader get from a page to its notebook, running or on disk, and to its source?

Every page has one menu in its header, plain HTML that needs no script: the notebook on Binder, in Colab,
on disk, on GitHub.
`opening.js` adds what only a script can do: the reader's own hub, and printing.
The page itself asks no host for anything; each entry is a link.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from allranks_book.repository import Repository, repository


def link(url: str, text: str, note: str = "", extra: str = "") -> str:
    """One entry of the menu; what leaves the book opens beside it."""
    outside = ' target="_blank" rel="noopener"' if "://" in url else ""
    said = f" <small>{escape(note)}</small>" if note else ""
    return f'<li><a href="{escape(url)}"{outside}{extra}>{escape(text)}</a>{said}</li>'


def group(title: str, entries: list[str], name: str) -> str:
    """A titled list of entries."""
    return f'<p id="ar-open-{name}">{title}</p><ul aria-labelledby="ar-open-{name}">{"".join(entries)}</ul>'


def running(home: Repository, path: str, how: str) -> str:
    """Where the notebook can run; the script puts the reader's hub first."""
    entries = [link(how, "On your own machine", "two commands")]
    if home.on_github and path.endswith(".ipynb"):
        first = (
            "<small>Not tried. Colab lacks the book’s package, so run this cell first; "
            "boxes show as their source there.</small>"
            f'<div class="highlight"><pre>{escape(home.install)}</pre></div></li>'
        )
        slow = "Not tried. The first start after a change takes minutes; 2\N{NO-BREAK SPACE}GB, no GPU."
        entries.append(link(home.binder(path), "On Binder", slow))
        entries.append(link(home.colab(path), "In Colab").replace("</li>", first))
    return group("Run it" if path.endswith(".ipynb") else "Run the book", entries, "run")


def taking(download: str, file: Path) -> str:
    """The file itself, as it stands in the repository."""
    kind = "Notebook, with its outputs" if file.suffix == ".ipynb" else "Source of this page"
    size = f"{file.name}, {max(1, round(file.stat().st_size / 1000))}\N{NO-BREAK SPACE}kB"
    return group("Take it along", [link(download, kind, size, f' download="{escape(file.name)}"')], "take")


def changing(home: Repository, path: str) -> str:
    """Where to read the source, correct it, and report what is wrong."""
    if not home.on_github:
        return group("Source", [link(home.url, "Repository")], "source")
    entries = [
        link(home.source(path), "Show the source"),
        link(home.edit(path), "Suggest a change"),
        link(home.issue(path), "Report a problem"),
        link(home.history(path), "What changed here"),
    ]
    return group("On GitHub", entries, "source")


def menu(home: Repository, path: str, download: str, how: str, file: Path) -> str:
    """The whole menu of one page."""
    opens = path if file.suffix == ".ipynb" else "notebooks"
    data = {"repository": home.url, "branch": home.branch, "opens": f"{home.name}/{opens}"}
    attributes = "".join(f' data-{key}="{escape(value)}"' for key, value in data.items())
    parts = [running(home, path, how), taking(download, file), changing(home, path)]
    return (
        f'<details class="ar-open"{attributes}><summary class="btn">'
        f'<i class="fas fa-play"></i><span>Open</span></summary>'
        f'<div class="ar-open-menu">{"".join(parts)}</div></details>'
    )


def add_menu(app, pagename, templatename, context, doctree) -> None:
    """Give each page that has a source its menu, with the style and the script."""
    if doctree is None:
        return
    home, file = repository(app.config), Path(app.env.doc2path(pagename))
    path = file.relative_to(app.srcdir).as_posix()
    how = context["pathto"]("book/how_to_use").removesuffix("#") + "#running"
    download = context["pathto"](f"_sources/{context['sourcename']}", True)
    context["opening"] = menu(home, path, download, how, file)
    app.add_css_file("opening.css", priority=900)
    app.add_js_file("opening.js", defer="defer")


def setup(app) -> None:
    """Fill in the menu with each page."""
    app.connect("html-page-context", add_menu)
