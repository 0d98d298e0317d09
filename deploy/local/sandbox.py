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

from jupyterhub.spawner import LocalProcessSpawner
from limits import Group
from traitlets import Integer, Unicode

MIRROR = "/srv/book.git"  # in the sandbox: the book as this machine has it, for links that clone it
FIRST_UID = 30_000  # of the users' own numbers on a hub that runs as root: accounts begin at 1,000
HOST = "all-ranks"
PORT = 8888  # the one that jupyter_server takes to mean "none", when it is given a socket
SYSTEM = "ld.so.cache alternatives ssl/certs ssl/openssl.cnf ca-certificates pki/ca-trust pki/tls/certs"
SYSTEM += (
    " fonts localtime mime.types services protocols nsswitch.conf profile bash.bashrc inputrc terminfo magic"
)
KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)  # the system call's number
JOIN_SESSION_KEYRING = 1
LIBC = ctypes.CDLL(None)


class SandboxSpawner(LocalProcessSpawner):
    """Starts each user's server in a sandbox, which has at most `mem_limit` of memory and `processes`."""

    folder = Unicode(config=True, help="What the hub keeps: users' homes, and the book that links clone.")
    sockets = Unicode(config=True, help="A folder with a short path: a socket's is at most 107 letters.")
    book = Unicode(
        config=True, help="The book's public address, in whose place links clone this machine's copy."
    )
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
        words = [*self.bwrap(), *bound("--ro-bind", str(self.place), str(self.place))]
        listen = f"TCP-LISTEN:{port},bind={ip},reuseaddr,fork,max-children=200"
        return [*words, *self.as_user(), "socat", listen, f"UNIX-CONNECT:{self.place / 'server'}"]

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

    def bwrap(self):
        """The command of bubblewrap: own processes, and of all files only the system's programs."""
        words = ["bwrap", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        words += [f"--unshare-{what}" for what in ("pid", "ipc", "uts", "cgroup")]
        # Where the user's number is the operator's, who may mount could change the own group's limits.
        words += [] if os.geteuid() == 0 else ["--unshare-user", "--disable-userns"]
        words += ["--ro-bind", "/usr", "/usr"]
        for path in map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64")):
            if path.is_symlink():
                words += ["--symlink", os.readlink(path), str(path)]
            elif path.exists():
                words += ["--ro-bind", str(path), str(path)]
        return words

    def as_user(self):
        """The end of bubblewrap's options, and who runs what follows."""
        if os.geteuid() != 0:
            return ["--"]
        number = str(self.uid)
        words = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--"]
        return [
            *words,
            "setpriv",
            "--reuid",
            number,
            "--regid",
            number,
            "--clear-groups",
            "--inh-caps=-all",
            "--",
        ]

    def sandbox(self):
        """The command of the sandbox, up to the command that runs inside."""
        name = self.user.escaped_name
        words = [*self.bwrap(), "--unshare-net", "--unsetenv", "XDG_RUNTIME_DIR"]
        words += ["--hostname", HOST, "--proc", "/proc", "--dev", "/dev"]
        for path in ("/tmp", "/dev/shm"):  # they are memory, and no process whose end would free it
            words += ["--perms", "1777", "--size", str(self.mem_limit // 3), "--tmpfs", path]
        words += ["--symlink", "/tmp", "/var/tmp"]
        for path in (
            "/etc",
            "/sys",
            "/sys/class",
            "/sys/class/net",
        ):  # gloo looks for network cards in the last
            words += ["--perms", "0755", "--dir", path]
        for file in SYSTEM.split():
            words += ["--ro-bind-try", f"/etc/{file}", f"/etc/{file}"]
        for file in self.names():
            words += bound("--ro-bind", f"{self.place}.etc/{file}", f"/etc/{file}")
        package = importlib.util.find_spec("allranks").submodule_search_locations[0]
        hub = str(Path(self.sockets, "hub"))
        for path in (sys.prefix, sys.base_prefix, package, hub):
            if not Path(path).is_relative_to("/usr"):
                words += bound("--ro-bind", path, path)
        words += bound("--ro-bind", str(Path(self.folder, "book.git")), MIRROR)
        words += bound("--bind", str(self.place), str(self.place))
        words += bound("--bind", str(self.home), f"/home/{name}")
        words += [*self.devices(), "--remount-ro", "/"]
        return [*words, *self.as_user(), "env", "-C", f"/home/{name}"]

    def devices(self):
        """NVIDIA's devices, and the folders in which their drivers look for the machine's shape."""
        gpus = sorted(map(str, Path("/dev").glob("nvidia*")))
        words = [word for path in gpus for word in ("--dev-bind", path, path)]
        for path in (
            ("/sys/devices", "/sys/bus/pci", "/sys/module/nvidia") if gpus else ("/sys/devices/system/cpu",)
        ):
            words += bound("--ro-bind-try", path, path)
        return words


def bound(option, source, target):
    """Show the folder `source` as `target`, in folders that all may enter; else they are as closed as it."""
    parents = [str(parent) for parent in Path(target).parents][-2::-1]
    return [word for parent in parents for word in ("--perms", "0755", "--dir", parent)] + [
        option,
        source,
        target,
    ]
