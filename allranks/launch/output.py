"""How do the lines of several processes share one cell? Each whole, each marked with its rank.

A rank writes into a file, so it never waits for its reader. In a terminal or in JupyterLab the lines
appear as they come. Where the output is kept and compared (the book, nbval) they appear at the end,
rank by rank, so that two runs print the same.
"""

import functools
import os
import secrets
import shutil
import sys
import tempfile

SHOWN = 200_000  # bytes of a rank's output that a cell shows
ALLOWED = 20_000_000  # bytes a rank may print before it is stopped


def is_ordered():
    """True if output has to come in the order of the ranks: under pytest, or when asked for."""
    return os.environ.get("ALLRANKS_OUTPUT") == "ordered" or "PYTEST_VERSION" in os.environ


@functools.cache
def kept():
    """Return the folder for outputs too long to show; the fork server removes it when the kernel ends."""
    return os.path.join(tempfile.gettempdir(), f"allranks-output-{os.getpid()}-{secrets.token_hex(4)}")


class Output:
    """What one rank has printed into the file `path`, and how much of it has been shown."""

    def __init__(self, rank, path):
        self.rank = rank
        self.path = path
        self.position = 0

    def printed(self):
        """Return how many bytes the rank has printed."""
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def show(self, last=False):
        """Print what is new, whole lines only unless this is the `last` time."""
        limit = min(self.printed(), SHOWN)
        if self.position < limit:
            with open(self.path, "rb") as file:
                file.seek(self.position)
                text = file.read(limit - self.position)
            if not last:
                text = text[: text.rfind(b"\n") + 1]
            self.position += len(text)
            self._print(text.decode("utf-8", "replace").removesuffix("\n").split("\n") if text else [])
        if last and self.printed() > self.position:
            self._print(
                [f"… and {self.printed() - self.position:,} bytes more; all of it is in {self._keep()}"]
            )

    def _print(self, lines):
        mark = f"[rank {self.rank}] "
        # A carriage return starts the line anew, as on a terminal: what counts is the last frame.
        frames = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
        write("".join(f"{mark}{frame}\n" for frame in frames))

    def _keep(self):
        os.makedirs(kept(), mode=0o700, exist_ok=True)
        directory = tempfile.mkdtemp(dir=kept())
        return shutil.copy(self.path, os.path.join(directory, f"rank-{self.rank}.txt"))


def write(text):
    """Print text here, as well as the encoding of this program's output allows."""
    if sys.stdout is None:  # the program was started without one
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    if hasattr(sys.stdout, "flush"):  # print needs no more than `write`
        sys.stdout.flush()
