"""How do the lines of several processes share one cell? Each whole, each marked with its rank.

A rank writes into a file, so it never waits for its reader. In a terminal or in JupyterLab the lines
appear as they come. Where the output is kept and compared (the book, nbval) they appear at the end,
rank by rank, so that two runs print the same.
"""

import os
import shutil
import sys
import tempfile

SHOWN = 200_000  # bytes of a rank's output that a cell shows
ALLOWED = 100_000_000  # bytes a rank may print before it is stopped


def is_ordered():
    """True if output has to come in the order of the ranks: under pytest, or when asked for."""
    return os.environ.get("ALLRANKS_OUTPUT") == "ordered" or "PYTEST_VERSION" in os.environ


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
        sys.stdout.write("".join(f"{mark}{frame}\n" for frame in frames))
        sys.stdout.flush()

    def _keep(self):
        directory = tempfile.mkdtemp(prefix="allranks-output-")
        return shutil.copy(self.path, os.path.join(directory, f"rank-{self.rank}.txt"))
