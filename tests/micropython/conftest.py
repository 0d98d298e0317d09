"""Starts MicroPython under Node, once for each file of tests."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from arithmetic import FILES, MODULES
from layers import PACKAGE

RUNNER = Path(__file__).with_name("run.mjs")
SECONDS = 60


class MicroPython:
    """A running MicroPython; `ask` sends one request and returns the answer."""

    def __init__(self, heap=64, package=PACKAGE, files=FILES):
        node = shutil.which("node") or shutil.which("node", path=Path(sys.executable).parent)
        if node is None:
            pytest.fail("There is no Node to run MicroPython: `make setup` installs it.", pytrace=False)
        if not (PACKAGE.parent / "node_modules" / "@micropython").exists():
            pytest.fail("MicroPython is not in node_modules: `make setup` installs it.", pytrace=False)
        command = [node, RUNNER, package, str(heap), *files]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.answer("its start")

    def answer(self, to):
        """Read one line; a MicroPython that says nothing for too long is killed."""
        deadline = threading.Timer(SECONDS, self.process.kill)
        deadline.start()
        line = self.process.stdout.readline()
        deadline.cancel()
        if not line:
            pytest.fail(f"MicroPython ended, or gave no answer in {SECONDS} s, to {to}", pytrace=False)
        return json.loads(line)

    def ask(self, **request):
        """Send {"expression": …} or {"statements": …}; return the answer."""
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer(request)

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=SECONDS)


@pytest.fixture(scope="module")
def micropython():
    """MicroPython with every module of the arithmetic that it can import."""
    running = MicroPython()
    for name in MODULES:
        running.ask(statements=f"canonical.load({name!r})")
    yield running
    running.close()
