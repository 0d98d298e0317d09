#!/usr/bin/env python
"""Serve the built book, with JupyterLab beside it, until Ctrl-C: `tools/serve.py [--book-only]`.

Both listen on free ports of this machine only. The book stays served when JupyterLab cannot start.
"""

import argparse
import contextlib
import functools
import http.server
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from allranks.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "_build" / "html"
HOST = "127.0.0.1"
START_SECONDS = 60
STOP_SECONDS = 10
STOP_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing about each of them."""

    def log_message(self, *_):
        pass

    def handle(self):
        with contextlib.suppress(ConnectionError):  # a reader who leaves a page early is no error
            super().handle()


def answers(url):
    """Whether anything answers at `url`."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


@contextlib.contextmanager
def book_server():
    """Serve the pages; yield their address."""
    handler = functools.partial(QuietHandler, directory=PAGES)
    with http.server.ThreadingHTTPServer((HOST, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def jupyterlab():
    """Start JupyterLab; yield its address, or None after saying why it did not start."""
    port, token = free_port(HOST), secrets.token_hex(24)
    with tempfile.TemporaryFile("w+") as log:
        # A session of its own keeps Ctrl-C from it: it is stopped below, without its question and in order.
        lab = subprocess.Popen(
            lab_command(port),
            cwd=ROOT,
            env=os.environ | {"JUPYTER_TOKEN": token},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            if wait_until(
                lambda: answers(f"http://{HOST}:{port}/api"), unless=lambda: lab.poll() is not None
            ):
                yield f"http://{HOST}:{port}/lab/tree/notebooks?token={token}"
            else:
                say_why_not(lab, log)
                yield None
        finally:
            stop(lab)


def lab_command(port):
    """JupyterLab in this environment, at this port, opening nothing by itself and asking for no news."""
    options = [f"--ServerApp.ip={HOST}", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.app_settings_dir={ROOT / 'tools' / 'jupyterlab'}",
        *options,
        *root,
    ]


def wait_until(ready, unless):
    """Wait for `ready()`; give up after a while, or as soon as `unless()`."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and not unless():
        if ready():
            return True
        time.sleep(0.2)
    return False


def say_why_not(lab, log):
    """Print the end of what a JupyterLab that did not start has written."""
    reason = (
        f"ended with exit code {lab.poll()}"
        if lab.poll() is not None
        else f"is silent after {START_SECONDS} s"
    )
    log.seek(0)
    last = "".join(f"    {line}" for line in log.readlines()[-10:])
    print(f"JupyterLab {reason}; the last it said:\n{last}", file=sys.stderr, flush=True)


def stop(process):
    """Ask the process to end, then make it."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def serve(book_only):
    with contextlib.ExitStack() as servers:
        book = servers.enter_context(book_server())
        lab = None if book_only else servers.enter_context(jupyterlab())
        print(f"\n  the book    {book}")
        if lab:
            print(f"  JupyterLab  {lab}")
        print("\nCtrl-C stops them.", flush=True)
        threading.Event().wait()


def interrupt(*_):
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C would leave JupyterLab half stopped
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--book-only", action="store_true", help="do not start JupyterLab")
    book_only = parser.parse_args().book_only
    if not (PAGES / "index.html").is_file():
        sys.exit("there is no built book in _build/html; `make book` builds it")
    for number in STOP_SIGNALS:
        signal.signal(number, interrupt)
    try:
        serve(book_only)
    except KeyboardInterrupt:
        print("stopped")


if __name__ == "__main__":
    main()
