"""Which scripts does a page need, and when?

None before it shows: each is deferred. A page does not load one that would find nothing to do there.
The search page keeps its scripts as Sphinx has them, since its own run at once.
Bootstrap's script, which draws no more than tooltips here, goes: the browser shows a `title` itself.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)
THEME, BOOTSTRAP = "pydata-sphinx-theme.js", "bootstrap.js"

HIGHLIGHTED = re.compile(r'class="highlight')
FOLDED = re.compile(r'class="[^"]*\b(?:admonition|toggle)\b')
TABS = re.compile(r'class="[^"]*\bsd-tab-set\b')
ONLY_WHERE = {
    "clipboard.min.js": HIGHLIGHTED,
    "copybutton.js": HIGHLIGHTED,
    "design-tabs.js": TABS,
    "togglebutton.js": FOLDED,
}
# A script inside the page that speaks to a file which now comes later. Only a version switcher and a search
# field that answers while one types would listen; the book has neither.
SPEAKS_TOO_EARLY = "DOCUMENTATION_OPTIONS."
# Makes boxes that scroll reachable by keyboard, as our scrollable.js does, but measures and changes one after
# the other: a layout for each, when the page is loaded and whenever something in it has changed.
MAKES_BOXES_REACHABLE = re.compile(
    r',"complete"===document\.readyState\?(\w+)\(\):window\.addEventListener\("load",\1\)'
)


def choose_scripts(app, pagename, templatename, context, doctree) -> None:
    """Keep the scripts that have something to do on this page, and let each wait for the page."""
    if pagename == "search":
        return
    chosen = []
    for script in context["script_files"]:
        if script.filename:
            where = ONLY_WHERE.get(str(script.filename).rpartition("/")[2])
            if where and not where.search(context.get("body", "")):
                continue
            attributes = {"defer": "defer", **script.attributes}
            script = type(script)(script.filename, priority=script.priority, **attributes)
        elif script.attributes["body"].startswith(SPEAKS_TOO_EARLY):
            continue
        chosen.append(script)
    context["script_files"] = chosen


def trim_theme(app, exception) -> None:
    """Take from the theme's scripts what pages do without, before its words would keep rules of style."""
    if exception or app.builder.format != "html":
        return
    folder = Path(app.outdir, "_static", "scripts")
    for file in folder.glob(f"{BOOTSTRAP}*"):
        file.unlink()
    text = (folder / THEME).read_text(encoding="utf-8")
    text, count = MAKES_BOXES_REACHABLE.subn("", text)
    if not count:
        logger.warning("%s does not make boxes reachable, has the theme changed?", THEME)
    (folder / THEME).write_text(text, encoding="utf-8")


def setup(app) -> None:
    """Choose when every extension has named its scripts; trim when Sphinx has copied them."""
    app.connect("html-page-context", choose_scripts, priority=950)
    app.connect("build-finished", trim_theme)
