"""How does a page keep still while its pictures arrive? Each says its size, and comes when it is near."""

from __future__ import annotations

import re
import struct
from pathlib import Path

PICTURE = re.compile(r'<img (?=[^>]*\bsrc="(?:\.\./)*(_images/[^"]+\.png)")(?![^>]*\bloading=)')


def size(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG file in pixels, from its header."""
    header = picture.read_bytes()[:24]
    if header[12:16] != b"IHDR":
        raise ValueError(f"{picture.name} is not a PNG file")
    return struct.unpack(">II", header[16:24])


def announce_pictures(app, exception) -> None:
    """Write size and `loading="lazy"` into the tag of each picture that this build wrote."""
    if exception or app.builder.format != "html":
        return
    outdir = Path(app.outdir)

    def announced(found):
        width, height = size(outdir / found[1])
        return f'<img width="{width}" height="{height}" loading="lazy" decoding="async" '

    for page in outdir.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        new = PICTURE.sub(announced, text)
        if new != text:
            page.write_text(new, encoding="utf-8")


def setup(app) -> None:
    """Announce the pictures when Sphinx has written the pages."""
    app.connect("build-finished", announce_pictures)
