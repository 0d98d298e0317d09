"""How few icons do the pages need?

The theme's icon fonts hold some two thousand glyphs in 300 kB.
After the build this module keeps the glyphs that a page or a style sheet names, in WOFF files of a few kB,
and removes what no page loads any more.
"""

from __future__ import annotations

import logging
import re
from io import BytesIO
from pathlib import Path

from fontTools import subset

logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of each table of each font

CLASS_RULE = re.compile(r'((?:\.fa-[\w-]+:{1,2}before,?)+)\{content:"([^"]+)"\}')
CODE_POINT = re.compile(r"\\(f[0-9a-f]{3})\b|([\uf000-\uf8ff])")
FONT_SOURCE = re.compile(
    r'url\(([^)]*/fa-[\w-]+)\.woff2\) format\("woff2"\),url\([^)]*\.ttf\) format\("truetype"\)'
)


def code_points(css: str) -> set[int]:
    """Private-use code points that a piece of CSS names, escaped or raw."""
    return {int(escaped, 16) if escaped else ord(raw) for escaped, raw in CODE_POINT.findall(css)}


def needed_code_points(outdir: Path, theme_css: str) -> set[int]:
    """Code points of the `fa-…` classes on the pages, and of the icons that style sheets set themselves."""
    named = set()
    for source in [*outdir.rglob("*.html"), *outdir.glob("_static/scripts/*.js")]:
        named.update(re.findall(r"\bfa-[\w-]+", source.read_text(encoding="utf-8")))
    needed = code_points(CLASS_RULE.sub("", theme_css))
    for selectors, content in CLASS_RULE.findall(theme_css):
        if named & set(re.findall(r"fa-[\w-]+", selectors)):
            needed |= code_points(content)
    for style_sheet in outdir.glob("_static/**/*.css"):
        if style_sheet.name != "pydata-sphinx-theme.css":
            needed |= code_points(style_sheet.read_text(encoding="utf-8"))
    return needed


def smaller(font_file: Path, needed: set[int]) -> bytes:
    """The WOFF bytes of a font with only the needed glyphs; its copyright and licence stay in it."""
    options = subset.Options(flavor="woff", layout_features=[], name_IDs=[0, 13, 14], notdef_outline=True)
    font = subset.load_font(str(font_file), options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=needed)
    subsetter.subset(font)
    stored = BytesIO()
    subset.save_font(font, stored, options)
    return stored.getvalue()


def keep_needed_icons(app, exception) -> None:
    """Replace the theme's icon fonts, and remove its source maps and icon script."""
    if exception or app.builder.format != "html":
        return
    static = Path(app.outdir, "_static")
    style_sheet = static / "styles" / "pydata-sphinx-theme.css"
    css = style_sheet.read_text(encoding="utf-8")
    needed = needed_code_points(Path(app.outdir), css)
    for font_file in static.glob("vendor/fontawesome/webfonts/*.ttf"):
        font_file.with_suffix(".woff").write_bytes(smaller(font_file, needed))
        font_file.with_suffix(".woff2").unlink()
        font_file.unlink()
    style_sheet.write_text(FONT_SOURCE.sub(r'url(\1.woff) format("woff")', css), encoding="utf-8")
    for unused in {*static.rglob("*.map"), *static.glob("scripts/fontawesome.js*")}:
        unused.unlink()


def setup(app) -> None:
    """Look for icons once every page and style sheet is in its place."""
    app.connect("build-finished", keep_needed_icons, priority=900)
