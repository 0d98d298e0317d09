"""A real Jupyter kernel, driven cell by cell, for tests and benchmarks."""

import os
import signal
import time
from collections import namedtuple

Cell = namedtuple("Cell", "text error seconds arrivals")
Cell.__doc__ = """What a cell showed: its streams and results as `text`, its `error` message or None, the
`seconds` it took, and when each piece of text arrived (`arrivals`, seconds after the start)."""


class Kernel:
    """`with Kernel() as kernel: kernel.run("1 + 1").text == "2"`; a variable set to None is not set."""

    def __init__(self, timeout=90, **environment):
        from jupyter_client.manager import KernelManager  # those who only look for leftovers need no Jupyter

        from .sockets import sockets

        self.timeout = timeout
        self.manager = KernelManager(kernel_name="python3", **sockets())
        self.environment = environment

    def __enter__(self):
        environment = {**os.environ, **self.environment}
        self.manager.start_kernel(env={name: value for name, value in environment.items() if value})
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=self.timeout)
        return self

    def __exit__(self, *_):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    @property
    def pid(self):
        return self.manager.provisioner.pid

    def run(self, code):
        """Run a cell to its end."""
        return self.finish(self.begin(code))

    def begin(self, code):
        """Start a cell and return at once what `finish` needs."""
        return self.client.execute(code), time.monotonic()

    def finish(self, begun):
        """Return what the cell showed, when it has ended."""
        request, start = begun
        text, arrivals, error = "", [], None
        while True:
            message = self.client.get_iopub_msg(timeout=self.timeout)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return Cell(text, error, time.monotonic() - start, arrivals)
            if kind == "error":
                error = content
            new = content.get("text") or content.get("data", {}).get("text/plain", "")
            if kind in ("stream", "execute_result", "display_data"):
                text += new
                arrivals.append((time.monotonic() - start, new))

    def interrupt(self):
        self.manager.interrupt_kernel()

    def kill(self):
        """End the kernel as a crash does: SIGKILL, and nothing else."""
        os.kill(self.pid, signal.SIGKILL)

    def kill_group(self):
        """End the kernel as Jupyter does when it does not answer: SIGKILL to its process group."""
        os.killpg(os.getpgid(self.pid), signal.SIGKILL)
