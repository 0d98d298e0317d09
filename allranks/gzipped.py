"""What does a file hold that may be gzipped, whatever its name says?"""

import gzip
from pathlib import Path

MAGIC = b"\x1f\x8b"  # how a gzipped file begins


def read(path):
    """The bytes of a file, decompressed if they are gzipped.

    Raises OSError, and EOFError or zlib.error if the compressed bytes end too early.
    """
    raw = Path(path).read_bytes()
    return gzip.decompress(raw) if raw.startswith(MAGIC) else raw
