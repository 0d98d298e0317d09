"""A hub as `make hub` runs it, and people who use it in a browser."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil

from allranks.ports import free_port

ROOT = Path(__file__).parents[2]
PASSWORD = "ring of eight ranks"
PATIENCE = 300  # seconds, on a busy machine
EXECUTE = (Path(__file__).parent / "execute.js").read_text()


class Hub:
    """A running hub: its address, its folder, its process."""

    def __init__(self, folder, before=(), **asked):
        self.folder = Path(folder)
        port = asked.get("HUB_PORT") or free_port()
        self.address = f"http://127.0.0.1:{port}"
        environment = {
            **os.environ,
            "PATH": f"{ROOT}/node_modules/.bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HUB_PORT": str(port),
            "HUB_FOLDER": str(self.folder),
            **asked,
        }
        self.log = open(self.folder / "log", "w+")  # noqa: SIM115 (open as long as the hub runs)
        command = [*before, sys.executable, str(ROOT / "deploy/local/start.py")]
        self.process = subprocess.Popen(
            command, env=environment, stdout=self.log, stderr=self.log, start_new_session=True
        )
        self.wait_for(self.answers, "the hub to answer")

    def answers(self) -> bool:
        """True when the hub shows its first page."""
        assert self.process.poll() is None, f"the hub ended:\n{self.said()}"
        try:
            urllib.request.urlopen(f"{self.address}/hub/login", timeout=5).close()
        except OSError:
            return False
        return True

    def said(self) -> str:
        """What it has printed."""
        return (self.folder / "log").read_text()

    def wait_for(self, happens, what: str) -> None:
        """Return as soon as `happens()`; fail after `PATIENCE` seconds."""
        until = time.monotonic() + PATIENCE
        while not happens():
            assert time.monotonic() < until, f"waited {PATIENCE} s for {what}; it said:\n{self.said()}"
            time.sleep(0.2)

    def processes(self) -> dict[int, str]:
        """Every process that descends from the hub: its number and its command."""
        found = {}
        for one in psutil.Process(self.process.pid).children(recursive=True):
            try:
                found[one.pid] = " ".join(one.cmdline())
            except psutil.NoSuchProcess:
                continue
        return found

    def has_ended(self, pids) -> bool:
        """True if none of these processes runs; the hub may not have asked yet how they ended."""
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    return False
        return True

    def of(self, name: str) -> dict[int, str]:
        """The processes of a user's sandbox, seen from outside."""
        found = {}
        for pid, command in self.processes().items():
            if command.startswith("bwrap") and f"/home/{name} " in command:
                with contextlib.suppress(psutil.NoSuchProcess):
                    found[pid] = "bwrap"
                    for one in psutil.Process(pid).children(recursive=True):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            found[one.pid] = one.name()
        return found

    def end(self) -> None:
        """End it as Ctrl-C does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(PATIENCE)
        self.log.close()


class Person:
    """Somebody with a name and a browser of their own. `page` is what they look at."""

    def __init__(self, hub: Hub, browser, name: str):
        self.hub, self.name = hub, name
        looks = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
        self.context = browser.new_context(bypass_csp=True, **looks)  # `run` opens websockets of its own
        self.context.set_default_timeout(PATIENCE * 1000)
        self.page = self.context.new_page()
        self.kernel = None

    def sign_up(self) -> None:
        """Make an account."""
        self.ask_for_account()
        self.page.get_by_text("The signup was successful").wait_for()

    def ask_for_account(self) -> None:
        """Fill in the form for a new account, and send it.

        That it has come must be waited for: the form before it has fields of the same names.
        """
        self.page.goto(f"{self.hub.address}/hub/login")
        self.page.get_by_role("link", name="Sign up").click()
        self.page.wait_for_url("**/hub/signup**")
        self.page.fill("#username_input", self.name)
        self.page.fill("#password_input", PASSWORD)
        self.page.fill("#password_confirmation_input", PASSWORD)
        self.page.click("#signup_submit")

    def sign_in(self, page=None) -> None:
        """Fill in the form that `page` shows, or the hub's own."""
        if page is None:
            page = self.page
            page.goto(f"{self.hub.address}/hub/login")
        page.get_by_label("Username").fill(self.name)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()

    def enter(self) -> None:
        """Sign up, sign in, and come to the own server, on a page that is at rest."""
        self.sign_up()
        self.sign_in()
        self.arrive()

    def arrive(self) -> None:
        """Wait for the own server's page, which the hub shows once it has started, and leave it for rest.

        The hub's own pages on the way have addresses that end alike: /hub/user/NAME/lab.
        """
        self.page.wait_for_url(f"{self.own}/lab**")
        self.rest()

    def start_again(self) -> None:
        """What a user does whose server has died: look at the hub's page until it offers to start one.

        Until the hub has asked its process, it leads to the dead server, and that page does not change.
        """

        def offered():
            self.page.goto(f"{self.hub.address}/hub/home")
            return self.page.get_by_role("button", name="Start My Server").is_visible()

        self.hub.wait_for(offered, "the hub to notice that the server has died")
        self.page.get_by_role("button", name="Start My Server").click()
        self.arrive()

    def rest(self) -> None:
        """Leave JupyterLab for a page of the own server that does nothing by itself."""
        self.page.goto(f"{self.own}/api/status")

    @property
    def own(self) -> str:
        """The address of this person's server."""
        return f"{self.hub.address}/user/{self.name}"

    def open_kernel(self) -> str:
        """Start a kernel; return its name."""
        return self.call("POST", "api/kernels")["id"]

    def call(self, method: str, path: str):
        """Ask the own server as the page would."""
        token = next(one["value"] for one in self.context.cookies(self.own + "/") if one["name"] == "_xsrf")
        got = self.context.request.fetch(f"{self.own}/{path}", method=method, headers={"X-XSRFToken": token})
        assert got.ok, f"{method} {path}: {got.status} {got.text()[:300]}"
        return json.loads(got.text()) if got.text() else None

    def run(self, code: str, seconds: float = 150, kernel: str | None = None) -> str:
        """Run `code` in this person's kernel, or in the one named; return what it printed, and its error.

        A kernel that dies says `the kernel died`, and the next run gets a new one; one that is still busy
        after `seconds` says `still busy`.
        """
        if kernel is None:
            kernel = self.kernel = self.kernel or self.open_kernel()
        said = self.page.evaluate(EXECUTE, [f"{self.own}/api/kernels/{kernel}/channels", code, seconds])
        if said.endswith("the kernel died"):
            self.kernel = None
        return said
