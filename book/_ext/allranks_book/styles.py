"""How does a page get all its style with one request?

The theme and its extensions bring a dozen style sheets, 90 kB gzipped, of which pages use a quarter.
Those that every page links become one, `styles/book.css`, in the order in which they were linked.
From the sheets of others, rules are left out that name a class, an id or an attribute which is in no page and
in no script (PurgeCSS; what a script adds later is a word in it). Those in `book/_static` stay whole.
A sheet that only some pages link stays by itself and follows.
"""

from __future__ import annotations

import json
import re
import subprocess
import zlib
from pathlib import Path

from sphinx.errors import ExtensionError

from allranks_book.formulas import node_binary

SCRIPT = Path(__file__).parent.parent / "styles.cjs"
BOOK = "styles/book.css"
LINK = re.compile(r'(?<=styles/book\.css)(?:\?v=\w+)?(?=")')
# The theme links these first; layout.html leaves that to the joined sheet.
OF_THE_LAYOUT = ["styles/theme.css", "styles/pydata-sphinx-theme.css"]
HOLD_NO_CLASSES = {"searchindex.js", "plotly-basic.min.js"}


def names(sheets) -> list[str]:
    """File names of style sheets below `_static`, in the order in which a page links them."""
    ordered = sorted(sheets, key=lambda sheet: sheet.priority)
    return [
        str(sheet.filename).removeprefix("_static/") for sheet in ordered if "media" not in sheet.attributes
    ]


def note_shared_sheets(app, pagename, templatename, context, doctree) -> None:
    """Before anyone adds to this page alone: these are the sheets of every page."""
    context["shared_sheets"] = app.builder.shared_sheets = names(context["css_files"])


def link_one_sheet(app, pagename, templatename, context, doctree) -> None:
    """Link the joined sheet instead of those in it."""
    shared = {f"_static/{name}" for name in context["shared_sheets"]}
    app.add_css_file(BOOK, priority=0)
    context["css_files"] = [sheet for sheet in context["css_files"] if str(sheet.filename) not in shared]


def is_ours(app, sheet: str) -> bool:
    """Whether the sheet was written for this book; what is vendored was not."""
    return not sheet.startswith("vendor/") and Path(app.srcdir, "book", "_static", sheet).exists()


def join_sheets(app, exception) -> None:
    """Write the joined sheet when all pages and scripts are there, and let pages ask for this version."""
    if exception or app.builder.format != "html":
        return
    outdir = Path(app.outdir)
    pages = sorted(outdir.rglob("*.html"))
    scripts = (script for script in outdir.rglob("*.js") if script.name not in HOLD_NO_CLASSES)
    sheets = OF_THE_LAYOUT + app.builder.shared_sheets
    order = {
        "root": str(outdir),
        "out": f"_static/{BOOK}",
        "sheets": [{"file": f"_static/{name}", "ours": is_ours(app, name)} for name in sheets],
        "words": [str(file.relative_to(outdir)) for file in [*pages, *scripts]],
    }
    done = subprocess.run(
        [node_binary(), SCRIPT], input=json.dumps(order), text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise ExtensionError(f"The style sheets could not be joined (is `npm ci` done?): {done.stderr}")
    version = f"?v={zlib.crc32((outdir / '_static' / BOOK).read_bytes()):08x}"
    for page in pages:
        text = page.read_text(encoding="utf-8")
        if (joined := LINK.sub(version, text)) != text:
            page.write_text(joined, encoding="utf-8")


def setup(app) -> None:
    """Note the shared sheets first of all, replace them last of all, join them when all is written."""
    app.connect("html-page-context", note_shared_sheets, priority=1)
    app.connect("html-page-context", link_one_sheet, priority=950)
    app.connect("build-finished", join_sheets, priority=990)
