"""What do extensions write into a page that must change? And where does the address of the book lead?

What changes around the article is in our templates (`templates/layout.html`).
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
TRIANGLE = re.compile(r'(<a class="[^"]*" href="[^"]*">([^<"]*)</a><details[^>]*>)<summary>')
OF_A_RANK = re.compile(r"(?m)^(<div[^>]*\bstream\b[^>]*><div[^>]*><pre>)?(<span></span>)?\[rank (\d)\](?=\s)")
VERDICT = re.compile(r"<pre>(?=<span></span>[✓✗] )")


def add_templates(app, config) -> None:
    """Let Sphinx find our templates before those of the themes."""
    config.templates_path.insert(0, str(TEMPLATES))


def unname_contents(app, doctree, docname) -> None:
    """sphinx-exercise gives the content of every exercise and solution the same id; nothing refers to it."""
    for section in doctree.findall(nodes.section):
        if section["ids"] in (["exercise-content"], ["solution-content"]):
            section["ids"] = []


def mark_outputs(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Colour the number of the rank that printed a line; let the sentence of a check wrap like one.

    An entry of the bibliography becomes an item of its list: docutils's own role for it is deprecated.
    """
    body = context.get("body", "").replace('role="doc-biblioentry"', 'role="listitem"')
    body = OF_A_RANK.sub(r'\1\2<span class="ar-mark ar-mark-\3">[rank \3]</span>', body)
    context["body"] = VERDICT.sub('<pre class="ar-verdict">', body)


def name_triangles(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Name the triangle that unfolds the sub-pages of a page in the contents; the theme does not."""
    contents = context["generate_toctree_html"]

    def named(*args, **kwargs):
        return TRIANGLE.sub(r'\1<summary aria-label="Pages below \2">', str(contents(*args, **kwargs)))

    context["generate_toctree_html"] = named


def write_front_door(app, exception) -> None:
    """The address of the book itself leads to its first page; Jupyter Book's page for this has no title."""
    if exception or app.builder.format != "html":
        return
    door = f"""<!DOCTYPE html>
<html lang="{app.config.language}">
<head>
<meta charset="utf-8">
<title>{app.config.project}</title>
<meta http-equiv="refresh" content="0; url={app.config.root_doc}.html">
<link rel="canonical" href="{app.config.root_doc}.html">
</head>
<body><p><a href="{app.config.root_doc}.html">{app.config.project}</a></p></body>
</html>
"""
    Path(app.outdir, "index.html").write_text(door, encoding="utf-8")
    for template in Path(app.outdir, "_static").glob("*macros.html"):
        template.unlink()  # of the themes, no pages


def setup(app) -> None:
    """Change what was read, the body when it is written, and what the theme's templates call."""
    app.add_css_file("still.css")
    app.connect("config-inited", add_templates)
    app.connect("doctree-resolved", unname_contents)
    app.connect("html-page-context", mark_outputs)
    app.connect("html-page-context", name_triangles, priority=900)
    app.connect("build-finished", write_front_door, priority=100)
