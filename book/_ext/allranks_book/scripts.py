"""Which scripts does a page need, and when?

None before it shows: each is deferred. A page does not load one that would find nothing to do there.
The search page keeps its scripts as Sphinx has them, since its own run at once.
"""

from __future__ import annotations

import re

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


def setup(app) -> None:
    """Choose when every extension has named its scripts."""
    app.connect("html-page-context", choose_scripts, priority=950)
