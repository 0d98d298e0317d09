"""How much memory may Python in a page use? The limit is in the interpreter's file (WebAssembly, section 5).

With it a program that takes more and more gets a MemoryError, and the page goes on.
"""

from __future__ import annotations

PAGE = 65536  # bytes
MEMORY = 5  # the number of the section
HEADER = 8  # bytes before the first section: magic and version


def read(data: bytes, at: int) -> tuple[int, int]:
    """(number, place behind it) of an unsigned LEB128 number."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def written(value: int) -> bytes:
    """A number as unsigned LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sections(module: bytes):
    """(number, place, place of the content, place behind it) of each section."""
    at = HEADER
    while at < len(module):
        size, content = read(module, at + 1)
        yield module[at], at, content, content + size
        at = content + size


def capped(module: bytes, nbytes: int) -> bytes:
    """The module with a maximum of its one memory; ValueError if it defines none."""
    for number, start, content, end in sections(module):
        if number == MEMORY:
            count, at = read(module, content)
            smallest, _ = read(module, at + 1)
            if count != 1 or smallest * PAGE > nbytes:
                raise ValueError(f"one memory of at most {nbytes} bytes was expected in the module")
            limits = written(1) + written(1) + written(smallest) + written(nbytes // PAGE)
            return module[:start] + bytes([MEMORY]) + written(len(limits)) + limits + module[end:]
    raise ValueError("the module defines no memory")
