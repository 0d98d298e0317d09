"""Does this container's Jupyter server answer? Exit code 0 if it does: `python healthcheck.py`.

A server writes its address into a file of its runtime folder; one that a hub started has its
address in the environment, too. Kubernetes does not read a HEALTHCHECK: there the hub asks.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

SECONDS = 5


def addresses():
    """Where servers of this user say that they listen."""
    if "JUPYTERHUB_SERVICE_URL" in os.environ:
        yield os.environ["JUPYTERHUB_SERVICE_URL"].replace("0.0.0.0", "127.0.0.1")
    for file in Path(jupyter_runtime_dir()).glob("jpserver-*.json"):
        yield json.loads(file.read_text())["url"]


def answers(address):
    """Whether a Jupyter server answers there; /api says its version to anyone."""
    try:
        with urllib.request.urlopen(address.rstrip("/") + "/api", timeout=SECONDS) as reply:
            return "version" in json.load(reply)
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError):
        return False


if __name__ == "__main__":
    found = list(addresses())
    if not any(map(answers, found)):
        sys.exit(f"no Jupyter server answers at {', '.join(found) or 'any address: none was started'}")
