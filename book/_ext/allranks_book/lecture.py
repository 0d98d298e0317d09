"""Which pages can be projected as slides, and where does a lecturer find that?

Every page made from a notebook gets two scripts, their style sheet, and a button in the bar above the
article. The button is part of the page, so that nothing moves when the scripts come; without scripts it
is hidden.
"""

from __future__ import annotations

BUTTON = {
    "type": "javascript",
    "javascript": "window.dispatchEvent(new Event('ar-lecture'))",
    "tooltip": "Show as slides (p)",
    "icon": "fas fa-chalkboard-user",
    "label": "lecture-button",
    "classes": "pst-js-only",
}


def add_lecture(app, pagename, templatename, context, doctree) -> None:
    """Give a page under notebooks/ that has at least two sections the button, the script and the style."""
    if not pagename.startswith("notebooks/") or context.get("body", "").count("<section") < 2:
        return
    context["header_buttons"].append(BUTTON)
    app.add_css_file("lecture.css", priority=900)
    for script in ("lecture_slides.js", "lecture.js"):
        app.add_js_file(script, defer="defer")


def setup(app) -> None:
    """Add the button after those of the theme."""
    app.connect("html-page-context", add_lecture, priority=600)
