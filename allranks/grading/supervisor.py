"""How does one submission end, whatever it does? Its supervisor kills all that it has started.

Linux hands orphans to the supervisor, also those that have left their session. Where bubblewrap works, the
runner and its ranks have a file system to read, one folder to write, and neither network nor other processes.
"""

import contextlib
import glob
import hashlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import allranks
from allranks.launch import keeper, packing, server

PACKAGE = Path(allranks.__file__).resolve().parent
START = 120.0  # seconds until the runner has to be ready: it imports torch
GIB = 1 << 30
LIMITS = {
    "RLIMIT_CORE": 0,
    "RLIMIT_CPU": 600,
    "RLIMIT_FSIZE": 2 * GIB,
    "RLIMIT_DATA": 8 * GIB,  # DeepSpeed reserves 3, and uses less
    "RLIMIT_NOFILE": 4096,
}
PROBE = (  # which does not wait until all is loaded that ranks could need
    "import os; del os.environ['ALLRANKS_STANDBY']; import allranks; allranks.launch(os.getpid, world_size=2)"
)
RUNNER = (  # a tenth of the time that it takes to load all is that of looking for garbage
    "import gc, sys; gc.disable(); from allranks.grading import runner; runner.main(*sys.argv[1:])"
)
PROCESSES = 400  # and threads, beyond those that the user has


def main():
    """Grade the submission that stdin describes; print one line of JSON."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    keeper.prctl(keeper.PR_SET_CHILD_SUBREAPER, 1)
    keeper.prctl(keeper.PR_SET_PDEATHSIG, signal.SIGTERM)
    print(json.dumps(supervised(**json.load(sys.stdin))))


def supervised(submission, seconds, sandboxed):
    """Return `{"tasks": [{"task", "points", "reason"}, …], "versions", "error"}`; each task has `seconds`.

    A task that does not finish, or ends its runner, costs its own points: a new runner goes on after it.
    """
    before, titles, lines, versions, first = fingerprint(), None, {}, {}, 0
    while titles is None or first < len(titles):
        request = {**submission, "first": first, "seconds": seconds}
        begun, why = None, ""
        for message in _messages(request, seconds, sandboxed):
            titles, versions = message.get("tasks", titles), message.get("versions", versions)
            begun = message.get("begun", begun)
            lines |= {message["number"]: message["line"]} if "line" in message else {}
            why = message.get("why", "")
        if begun is None:
            return {"tasks": [], "versions": versions, "error": "its checks could not be started"}
        lines.setdefault(begun, f"✗ {why}")
        first = begun + 1
    tasks = [
        {"task": title, "points": int(lines[k].startswith("✓")), "reason": lines[k][2:]}
        for k, title in enumerate(titles)
    ]
    changed = "files of allranks changed meanwhile: install it anew, and look at this submission"
    return {"tasks": tasks, "versions": versions, "error": changed if fingerprint() != before else ""}


def fingerprint():
    """A hash of the package's code."""
    files = sorted(PACKAGE.rglob("*.py"))
    return hashlib.sha256(b"".join(bytes(path) + path.read_bytes() for path in files)).hexdigest()


def has_sandbox():
    """True if bubblewrap is here, and ranks can be launched in it; this takes some seconds."""
    if not shutil.which("bwrap"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        return _started(["-c", PROBE], folder, True, stdin=subprocess.DEVNULL).wait() == 0


def _started(words, folder, sandboxed, **streams):
    """Python with `words` in `folder`, with limits and nothing of this process's environment."""
    return subprocess.Popen(
        [*(_sandbox(folder) if sandboxed else []), sys.executable, "-P", *words],
        cwd=folder, env=_environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, preexec_fn=_limit, **streams,
    )  # fmt: skip


def _messages(request, seconds, sandboxed):
    """What a runner says, each message before its deadline; the last one may be `why` it says no more."""
    with tempfile.TemporaryDirectory(prefix="grading-", ignore_cleanup_errors=True) as folder:
        read, write = os.pipe()
        words = ["-c", RUNNER, str(write), request["lab"]]
        runner = _started(words, folder, sandboxed, stdin=subprocess.PIPE, pass_fds=[write])
        os.close(write)
        try:
            with contextlib.suppress(BrokenPipeError), runner.stdin:
                runner.stdin.write(json.dumps(request).encode())
            yield from _lines(read, seconds)
        finally:
            os.close(read)
            _end_all(runner)


def _lines(read, seconds):
    rest, until = b"", time.monotonic() + START
    while True:
        if not select.select([read], [], [], max(0.0, until - time.monotonic()))[0]:
            yield {"why": f"The task did not finish in {seconds:g} s."}
            return
        if not (part := os.read(read, 1 << 16)):
            yield {"why": "The submission ended the process that checks it."}
            return
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            message = json.loads(line)
            yield message
            if "done" in message:
                return
        until = time.monotonic() + seconds if lines else until


def _end_all(runner):
    """Kill the runner and all below this process, and remove what its launches left in shared memory."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(runner.pid, signal.SIGKILL)
    runner.wait()
    keeper.end_below()
    for folder in glob.glob(f"{packing.SHARED_MEMORY}/allranks-{runner.pid}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def _environment(folder):
    """Nothing of the lecturer's but the language and the path to programs: no tokens, no home."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL")}
    own = {
        "HOME": folder,
        "TMPDIR": folder,
        "PYTHONPATH": str(PACKAGE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return kept | own | server.ONE_THREAD | {"CUDA_VISIBLE_DEVICES": "", "ALLRANKS_STANDBY": "0"}


def _limit():
    """In the runner, before it runs: it dies with the supervisor, and all below it inherit the limits."""
    keeper.prctl(keeper.PR_SET_PDEATHSIG, signal.SIGKILL)
    threads = len([path for path in glob.glob("/proc/[0-9]*/task/[0-9]*") if _is_own(path)])
    for name, value in (LIMITS | {"RLIMIT_NPROC": threads + PROCESSES}).items():
        with contextlib.suppress(AttributeError, ValueError, OSError):  # macOS has fewer
            kind = getattr(resource, name)
            most = {value, resource.getrlimit(kind)[1]} - {resource.RLIM_INFINITY}
            resource.setrlimit(kind, (min(most), min(most)))


def _is_own(path):
    with contextlib.suppress(OSError):
        return os.stat(path).st_uid == os.getuid()


def _sandbox(folder):
    """bubblewrap's options: all of this machine to read but people's files, `folder` to write."""
    words = ["bwrap", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--unshare-all"]
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/dev/shm"]
    for people in ("/tmp", "/var/tmp", "/home", "/root", "/run", "/mnt", "/media", "/srv"):
        words += ["--tmpfs", people] if Path(people).is_dir() and not Path(people).is_symlink() else []
    for needed in (sys.prefix, sys.base_prefix, str(PACKAGE)):
        words += ["--ro-bind", needed, needed] if not Path(needed).is_relative_to("/usr") else []
    return [*words, "--bind", folder, folder, "--chdir", folder, "--"]


if __name__ == "__main__":
    main()
