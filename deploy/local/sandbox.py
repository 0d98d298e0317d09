"""Where does a user of this hub live? In a sandbox of bubblewrap: own files, own processes, own loopback.

A process group of gloo listens on loopback, and a TCP store answers every local user. So each sandbox has
a network of its own, with nothing in it but its own loopback. The hub and the user's server talk through
two Unix sockets: `hub` leads out, `server` leads in.

    browser ── proxy ── 127.0.0.1:port ── socat ── sockets/users/alice/server ── jupyterhub-singleuser
                 └───── sockets/hub/hub ────────────────────────────────────────────────┘

The first process of the sandbox is its process namespace: when it ends, the kernel ends all others.
"""

import asyncio
import ctypes
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen, TimeoutExpired

import bubble
from jupyterhub.spawner import LocalProcessSpawner
from limits import Group
from traitlets import Integer, Unicode

from allranks.ports import free_port

MIRROR = "/srv/book.git"  # in the sandbox: the book as this machine has it, for links that clone it
FIRST_UID = 30_000  # of the users' own numbers on a hub that runs as root: accounts begin at 1,000
HOST = "all-ranks"  # what each sandbox calls itself
PORT = 8888  # the one that jupyter_server takes to mean "none", when it is given a socket
KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)  # the system call's number
JOIN_SESSION_KEYRING = 1
LIBC = ctypes.CDLL(None)


class SandboxSpawner(LocalProcessSpawner):
    """Starts each user's server in a sandbox, which has at most `mem_limit` of memory and `processes`."""

    folder = Unicode(config=True, help="What the hub keeps: users' homes, and the book that links clone.")
    sockets = Unicode(config=True, help="A folder with a short path: a socket's is at most 107 letters.")
    book = Unicode(config=True, help="The book's public address; links get this machine's copy instead.")
    processes = Integer(500, config=True, help="Processes and threads that one user may have.")

    socat = log_writer = None

    @property
    def place(self):
        """The folder of this user's socket."""
        return Path(self.sockets, "users", self.word)

    @property
    def word(self):
        """A short name that is a file's, and no other user's."""
        return hashlib.sha256(self.user.name.encode()).hexdigest()[:16]

    @property
    def home(self):
        """Outside of the sandbox; inside it is /home/NAME."""
        return Path(self.folder, "users", self.user.escaped_name)

    @property
    def uid(self):
        """Whose processes and files these are, seen from outside."""
        return FIRST_UID + self.user.id if os.geteuid() == 0 else os.geteuid()

    def group(self):
        """The control group that limits this user."""
        return Group(f"{os.getpid()}-{self.user.name}", self.mem_limit, self.processes)

    def make_preexec_fn(self, name):
        """Entering the group comes before everything else; then the hub's keys of the kernel are left."""
        group = self.group()

        def enter():
            group.enter()
            if KEYCTL:
                LIBC.syscall(KEYCTL, JOIN_SESSION_KEYRING, None)

        return enter

    def get_state(self):
        """No process number outlives the hub: after a restart the number is a stranger's."""
        return {name: value for name, value in super().get_state().items() if name != "pid"}

    def user_env(self, env):
        """What the server finds: a home, and the programs of the book's environment."""
        name = self.user.escaped_name
        return env | {
            "USER": name,
            "HOME": f"/home/{name}",
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{PORT}{self.server.base_url}",
        }

    async def start(self):
        """Start the sandbox, and what leads the proxy into it."""
        self.group().make()
        shutil.rmtree(self.place, ignore_errors=True)  # what its user left there is not trusted
        for folder in (self.home, self.place):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            os.chown(folder, self.uid, -1)
        for name, text in self.names().items():
            file = Path(f"{self.place}.etc", name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self.cmd = [*self.group().command(), *self.sandbox(), "jupyterhub-singleuser"]
        self.port = self.port or free_port()  # none that the system gives to another before `socat` has it
        with self.log_pipe() as pipe:
            self.popen_kwargs = {"stdin": DEVNULL, "stdout": pipe, "stderr": STDOUT}
            ip, port = await super().start()
        silent = {"stdin": DEVNULL, "stdout": DEVNULL, "stderr": DEVNULL}  # it tells of each early knock
        self.socat = Popen(self.way_in(ip, port), start_new_session=True, **silent)
        return ip, port

    def log_pipe(self):
        """Where the server writes: a pipe, so that no user has the hub's log, or its terminal, open."""
        lines = ["s/[[:cntrl:]]/?/g", f"s/^/{self.user.escaped_name}: /"]
        command = ["sed", "--unbuffered", *(word for line in lines for word in ("-e", line))]
        c = os.environ | {"LC_ALL": "C"}
        self.log_writer = Popen(command, stdin=PIPE, start_new_session=True, env=c)
        return self.log_writer.stdin

    def way_in(self, ip, port):
        """What leads the proxy to the user's socket.

        The user may put a link in its place: so it sees only that folder, and nothing that a link can name.
        """
        words = [*bubble.program(), *bubble.shown("--ro-bind", self.place)]
        listen = f"TCP-LISTEN:{port},bind={ip},reuseaddr,fork,max-children=200"
        return [*words, *bubble.run_as(self.uid), "socat", listen, f"UNIX-CONNECT:{self.place / 'server'}"]

    def get_args(self):
        """The server listens on its socket and nowhere else."""
        return [*super().get_args(), f"--ServerApp.sock={self.place / 'server'}"]

    async def stop(self, now=False):
        """End the sandbox at once: with its first process all others end."""
        await super().stop(now=True)
        await self.leave_nothing()

    async def poll(self):
        """None while the server runs, else its exit status; a server that ended leaves nothing either."""
        status = await super().poll()
        if status is not None:
            await self.leave_nothing()
        return status

    async def leave_nothing(self):
        """What is outside of the sandbox ends too."""
        if self.socat:
            os.killpg(self.socat.pid, signal.SIGKILL)
            self.socat.wait()
            self.socat = None
            try:
                await asyncio.to_thread(self.log_writer.wait, 5)
            except TimeoutExpired:
                self.log_writer.kill()
                self.log_writer.wait()
            await asyncio.to_thread(self.group().remove)

    def names(self):
        """Files of /etc: who this user is, what this machine is called, where git finds the book, …"""
        name, number = self.user.escaped_name, self.uid
        no_news = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
        return {
            "passwd": f"{name}:x:{number}:{number}::/home/{name}:/bin/bash\n",
            "group": f"{name}:x:{number}:\n",
            "gitconfig": f'[url "file://{MIRROR}"]\ninsteadOf = {self.book}\n[safe]\ndirectory = {MIRROR}\n',
            "jupyter/labconfig/page_config.json": json.dumps(no_news),
            "hosts": f"127.0.0.1 localhost {HOST}\n::1 localhost\n::ffff:127.0.0.1 localhost\n",
        }

    def sandbox(self):
        """The command of the sandbox, up to the command that runs inside."""
        home = f"/home/{self.user.escaped_name}"
        words = [*bubble.program(), "--unshare-net", "--hostname", HOST, "--unsetenv", "XDG_RUNTIME_DIR"]
        words += bubble.system(size=self.mem_limit // 3)
        for file in self.names():
            words += bubble.shown("--ro-bind", f"{self.place}.etc/{file}", f"/etc/{file}")
        package = importlib.util.find_spec("allranks").submodule_search_locations[0]
        for path in (sys.prefix, sys.base_prefix, package, f"{self.sockets}/hub"):
            if not Path(path).is_relative_to("/usr"):
                words += bubble.shown("--ro-bind", path)
        words += bubble.shown("--ro-bind", f"{self.folder}/book.git", MIRROR)
        words += bubble.shown("--bind", self.place)
        words += bubble.shown("--bind", self.home, home)
        return [*words, "--remount-ro", "/", *bubble.run_as(self.uid), "env", "-C", home]
