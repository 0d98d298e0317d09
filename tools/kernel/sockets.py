"""Where a kernel is reached: at files of its own. A port found free may be taken before it is bound."""

import os
from pathlib import Path
from uuid import uuid4

from jupyter_core.paths import jupyter_runtime_dir


def sockets():
    """What `KernelManager` needs for a kernel on Unix sockets (paths of 107 bytes at most); {} on Windows."""
    if os.name == "nt":
        return {}
    folder = Path(jupyter_runtime_dir())
    folder.mkdir(parents=True, exist_ok=True)
    return {"transport": "ipc", "connection_file": str(folder / f"{uuid4().hex[:12]}.json")}
