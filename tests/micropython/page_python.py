"""Runs programs as a page with ranks does, with the very files that it ships, in both Pythons."""

import json
import subprocess
import sys

from allranks_book import rank_files
from conftest import MicroPython

SERVE = """import sys; sys.path.insert(0, sys.argv[1])
import page
for line in sys.stdin:
    print(page.answer(line), flush=True)"""


class InMicroPython:
    """`ask(question)` in MicroPython under Node."""

    def __init__(self, folder):
        rank_files.write(folder)
        files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.py"))]
        inside = [path.removeprefix("allranks/") if "allranks/" in path else f"../{path}" for path in files]
        self.running = MicroPython(heap=16, package=folder / "allranks", files=inside)
        started = self.running.ask(statements="import page; canonical.names['page'] = page")
        assert "error" not in started, started

    def ask(self, **question):
        """The page's answer to one question."""
        told = self.running.ask(expression=f"page.answer({json.dumps(question)!r})")
        assert "value" in told, told
        return json.loads(told["value"])

    def close(self):
        """End the process."""
        self.running.close()


class InCPython:
    """`ask(question)` in a CPython that has only these files, and no other torch."""

    def __init__(self, folder):
        rank_files.write(folder)
        command = [sys.executable, "-I", "-S", "-c", SERVE, folder]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, **question):
        """The page's answer to one question."""
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=10)


def program(source, α=1e-5, β=1e-9):
    """The question that runs a program."""
    return {"source": source, "alpha": α, "beta": β, "narrow": False}
