"""How a figure of a notebook reaches the page, and does every figure say in words what it shows?

The text alternative of a figure is cell metadata: `{"mystnb": {"image": {"alt": "…"}}}`.
A drawing in SVG becomes part of the page, whose colours it takes, light and dark.
A Plotly figure is stored as JSON beside that text; `plotly_figures.js` draws it when it nears the viewport.
"""

from __future__ import annotations

import html
import json
from typing import ClassVar

from docutils import nodes
from myst_nb.core.render import MimeRenderPlugin, load_mime_renders, sanitize_script_content
from sphinx.util import logging

logger = logging.getLogger(__name__)
SVG = "image/svg+xml"
PLOTLY = "application/vnd.plotly.v1+json"


class PlotlyFigure(MimeRenderPlugin):
    """Show a stored Plotly figure: its words for everyone, its drawing where scripts run."""

    mime_priority_overrides: ClassVar = [("html", PLOTLY, 5)]

    @staticmethod
    def handle_mime(renderer, data, inline):
        """The figure as raw HTML, or None for any other kind of output."""
        if data.mime_type != PLOTLY or inline:
            return None
        options = renderer.renderer.get_cell_level_config(
            "render_image_options", data.cell_metadata, line=data.line
        )
        words = options.get("alt", "")
        if not words:
            renderer.logger.warning("a Plotly figure has no text alternative", line=data.line)
        renderer.add_js_file("plotly_figures", "plotly_figures.js", {"defer": "defer"})
        figure = {key: data.content[key] for key in ("data", "layout") if key in data.content}
        figure.get("layout", {}).pop("template", None)  # the page's own colours, light and dark
        return [nodes.raw(text=figure_html(figure, words), format="html", classes=["output"])]


def figure_html(figure: dict, words: str) -> str:
    """A `<figure>` that holds the words, the place for the drawing, and the figure as JSON."""
    height = int(figure.get("layout", {}).get("height", 360))
    stored = sanitize_script_content(json.dumps(figure, separators=(",", ":")))
    words = html.escape(words)
    return (
        f'<figure class="ar-plotly"><div class="ar-drawing" data-height="{height}"></div>'
        f'<script type="application/json">{stored}</script>'
        f"<figcaption>{words}</figcaption></figure>"
    )


class Drawing(MimeRenderPlugin):
    """Show a stored drawing with its alternative text; myst-nb adds the caption, if the cell has one."""

    mime_priority_overrides: ClassVar = [("html", SVG, 5)]

    @staticmethod
    def handle_mime(renderer, data, inline):
        """The drawing as raw HTML, or None for any other kind of output, an explorer included."""
        if data.mime_type != SVG or inline or "explorer" in data.output_metadata.get(SVG, {}):
            return None
        words = data.cell_metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        if not words:
            renderer.logger.warning("a drawing has no text alternative", line=data.line)
        return [nodes.raw(text=drawing_html(data.content, words), format="html", classes=["output"])]


def drawing_html(svg: str, words: str) -> str:
    """The drawing, and its words for those who do not see it."""
    return f'<div class="ar-figure" role="img" aria-label="{html.escape(words)}">{svg}</div>'


def require_alternatives(app, doctree) -> None:
    """Warn of each picture without a text alternative."""
    for image in doctree.findall(nodes.image):
        if not image.get("alt", "").strip():
            logger.warning("a picture has no text alternative (alt)", location=image)


def number_by_page(app, env) -> list[str]:
    """Number the figures of each page from 1, not through the book as Sphinx does; no page is outdated."""
    for kinds in env.toc_fignumbers.values():
        for numbers in kinds.values():
            numbers.update({name: (place,) for place, name in enumerate(numbers, start=1)})
    return []


def setup(app) -> None:
    """Register the renderers with myst-nb, which otherwise reads entry points only."""
    renderers = load_mime_renders()
    renderers.extend(one for one in (PlotlyFigure, Drawing) if one not in renderers)
    app.connect("doctree-read", require_alternatives)
    app.connect("env-get-updated", number_by_page, priority=900)
