"""Do the image's install steps give a reader's server that works? How long do they take, how large is it?

`python benchmarks/image.py` runs deploy/image/install.sh into an empty folder, with the CPU variant, and
then what was installed: a hub of that environment starts a reader's server, nbgitpuller clones into it, a
kernel of it runs a notebook whole, with its ranks. `--prefix FOLDER` tries an environment that is there,
such as the image's own. Linux.
"""

import argparse
import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

import psutil
import websocket

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from serve import free_port

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = "notebooks/foundations/ranks.ipynb"
LIMIT = 120  # seconds, for what is not an install step
CONFIG = """
from jupyterhub.proxy import Proxy

class NoProxy(Proxy):
    \"\"\"Remembers the routes: whoever asks here knows the server's own address.\"\"\"
    routes = {{}}
    async def add_route(self, spec, target, data):
        self.routes[spec] = {{"routespec": spec, "target": target, "data": data}}
    async def delete_route(self, spec):
        self.routes.pop(spec, None)
    async def get_all_routes(self):
        return self.routes

c.JupyterHub.proxy_class = NoProxy
c.NoProxy.should_start = False
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.JupyterHub.db_url = "sqlite://"
c.JupyterHub.authenticator_class = "null"
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = '{home}'
c.Spawner.port = {server}
c.Spawner.cmd = [{singleuser!r}, *{as_root!r}]
c.JupyterHub.services = [{{"name": "benchmark", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [{{"name": "benchmark", "services": ["benchmark"],
    "scopes": ["admin:users", "admin:servers", "access:servers"]}}]
"""


def step(name, prefix):
    """Run one of the install steps; return its seconds."""
    start = time.monotonic()
    environment = {"VARIANT": "cpu", "TORCH_CPU": "", **os.environ, "PREFIX": str(prefix)}
    subprocess.run(["bash", ROOT / "deploy/image/install.sh", name], env=environment, check=True)
    return time.monotonic() - start


def ask(address, token, method="GET", body=None):
    """What a hub or a server answers, as text; HTTPError where it refuses."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Authorization": f"token {token}"}, method=method)
    with urllib.request.urlopen(request, timeout=LIMIT) as reply:
        return reply.read().decode()


def wait_for(what, ready, process):
    """Wait until `ready()`; give up after a while, or when the process has ended."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            if ready():
                return
        time.sleep(0.2)
    raise SystemExit(f"{what} did not come within {LIMIT} s, or the hub ended (exit code {process.poll()})")


@contextlib.contextmanager
def reader(prefix, folder):
    """A reader's server, started by a hub of this environment: its address, its token, its process."""
    hub, server, token = free_port(), free_port(), secrets.token_hex(24)
    home = folder / "home"
    home.mkdir()
    config = folder / "jupyterhub_config.py"
    as_root = ["--allow-root"] if os.geteuid() == 0 else []
    singleuser = str(prefix / "bin" / "jupyterhub-singleuser")
    config.write_text(CONFIG.format(**locals()))
    environment = os.environ | {"PATH": f"{prefix / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    with open(folder / "log", "w") as log:
        command = [prefix / "bin" / "jupyterhub", "-f", config]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        api = f"http://127.0.0.1:{hub}/hub/api"
        try:
            wait_for("the hub", lambda: ask(api, token), process)
            ask(f"{api}/users/ada", token, "POST", {})
            ask(f"{api}/users/ada/server", token, "POST", {})
            wait_for(
                "the reader's server",
                lambda: json.loads(ask(f"{api}/users/ada", token))["servers"].get("", {}).get("ready"),
                process,
            )
            (own,) = [
                c for c in psutil.Process(process.pid).children() if "singleuser" in " ".join(c.cmdline())
            ]
            yield f"http://127.0.0.1:{server}/user/ada", token, own
            ask(f"{api}/users/ada/server", token, "DELETE")
        except BaseException:
            print((folder / "log").read_text()[-3000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(LIMIT)


def pulled(address, token, folder):
    """Let nbgitpuller clone a repository with the notebook; return where it is in the reader's folder."""
    origin = folder / "origin"
    (origin / "notebooks/foundations").mkdir(parents=True)
    (origin / NOTEBOOK).write_bytes((ROOT / NOTEBOOK).read_bytes())
    git = ["git", "-C", origin, "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "the notebook"]):
        subprocess.run([*git, *words], check=True)
    query = urllib.parse.urlencode({"repo": f"file://{origin}", "branch": "main", "targetpath": "allranks"})
    said = ask(f"{address}/git-pull/api?{query}", token)
    assert '"phase": "finished"' in said, said
    return f"allranks/{NOTEBOOK}"


def run(socket, code):
    """Run a cell in the kernel at the other end; return its error as a text, or nothing."""
    identity = uuid.uuid4().hex
    header = {"msg_id": identity, "session": identity, "username": "", "version": "5.3"}
    header["msg_type"] = "execute_request"
    content = {"code": code, "allow_stdin": False, "stop_on_error": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    socket.send(json.dumps(message))
    while True:
        got = json.loads(socket.recv())
        if got["msg_type"] == "execute_reply" and got["parent_header"].get("msg_id") == identity:
            return (
                ""
                if got["content"]["status"] == "ok"
                else f"{got['content']['ename']}: {got['content']['evalue']}"
            )


def megabytes(process):
    """The proportional set sizes of a process and of all below it, and how many they are."""
    total = count = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += one.memory_full_info().pss / 1e6
                count += 1
    return total, count


def run_notebook(address, token, server, path):
    """Run every cell in a kernel of the server; return the most memory and processes on the way."""
    notebook = json.loads(ask(f"{address}/api/contents/{path}", token))["content"]
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
    kernel = json.loads(ask(f"{address}/api/sessions", token, "POST", body))["kernel"]["id"]
    done, most = threading.Event(), [0, 0]

    def watch():
        while not done.wait(0.1):
            most[:] = map(max, most, megabytes(server))

    watcher = threading.Thread(target=watch)
    watcher.start()
    socket = websocket.create_connection(
        f"{address.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels",
        header=[f"Authorization: token {token}"], timeout=LIMIT,
    )  # fmt: skip
    try:
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                continue
            error = run(socket, cell["source"])
            meant = "raises-exception" in cell["metadata"].get("tags", [])
            assert bool(error) == meant, f"cell {cell['id']}: {error or 'no error, and one was meant'}"
    finally:
        done.set()
        watcher.join()
        socket.close()
    return most


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prefix", type=Path, help="try this environment; install nothing")
    given = parser.parse_args().prefix
    given = given and given.resolve()
    with tempfile.TemporaryDirectory() as folder:
        prefix = given or Path(folder, "environment")
        if not given:
            for name in ("environment", "book", "check"):
                print(f"install.sh {name}: {step(name, prefix):.0f} s", flush=True)
        size = subprocess.run(
            ["du", "-sm", prefix], capture_output=True, text=True, check=True
        ).stdout.split()[0]
        print(f"size: {size} MB")
        start = time.monotonic()
        with reader(prefix, Path(folder)) as (address, token, server):
            print(f"a hub and a reader's server: {time.monotonic() - start:.1f} s")
            assert "jupyterlab" in ask(f"{address}/lab", token).lower()
            extensions = json.loads(ask(f"{address}/lab/api/extensions", token))
            assert any(one["name"] == "jupyterlab-myst" and one["enabled"] for one in extensions), extensions
            checked = {**os.environ, "JUPYTERHUB_SERVICE_URL": address}
            health = ROOT / "deploy/image/healthcheck.py"
            subprocess.run([prefix / "bin/python", health], env=checked, check=True)
            print(f"the server alone: {megabytes(server)[0]:.0f} MB")
            path = pulled(address, token, Path(folder))
            start = time.monotonic()
            most, processes = run_notebook(address, token, server, path)
            print(
                f"{NOTEBOOK}: {time.monotonic() - start:.0f} s, at most {most:.0f} MB, {processes} processes"
            )


if __name__ == "__main__":
    main()
