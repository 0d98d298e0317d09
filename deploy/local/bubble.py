"""What does bubblewrap have to be told? Its options, in the order in which it takes them.

https://github.com/containers/bubblewrap: the file system is empty until an option shows something in it,
and a later option covers an earlier one.
"""

import os
from pathlib import Path

# Of /etc, what says nothing of the people of this machine, and holds no key.
ETC = """
    alternatives bash.bashrc ca-certificates fonts inputrc ld.so.cache localtime magic mime.types
    nsswitch.conf pki/ca-trust pki/tls/certs profile protocols services ssl/certs ssl/openssl.cnf terminfo
"""


def program():
    """The command: own processes, no rights, and of all files only the system's programs."""
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


def system(size):
    """What a program expects to find; /tmp and /dev/shm hold `size` bytes each, which no process frees."""
    words = ["--proc", "/proc", "--dev", "/dev"]
    for path in ("/tmp", "/dev/shm"):
        words += ["--perms", "1777", "--size", str(size), "--tmpfs", path]
    words += ["--symlink", "/tmp", "/var/tmp"]
    words += parents("/etc/*") + parents("/sys/class/net/*")  # gloo looks for network cards in the latter
    for file in ETC.split():
        words += ["--ro-bind-try", f"/etc/{file}", f"/etc/{file}"]
    return words + devices()


def devices():
    """NVIDIA's devices, and the folders in which their drivers look for the machine's shape."""
    gpus = sorted(Path("/dev").glob("nvidia*"))
    shape = ("/sys/devices", "/sys/bus/pci", "/sys/module/nvidia") if gpus else ("/sys/devices/system/cpu",)
    words = [word for path in gpus for word in ("--dev-bind", str(path), str(path))]
    return words + [word for path in shape for word in shown("--ro-bind-try", path)]


def shown(option, source, target=None):
    """Show a file or folder, at its own place or as `target`, in folders that all may enter."""
    target = str(target or source)
    return [*parents(target), option, str(source), target]


def parents(path):
    """The folders above `path`: left to bubblewrap, they would be as closed as what is shown in them."""
    above = [str(parent) for parent in Path(path).parents][-2::-1]
    return [word for folder in above for word in ("--perms", "0755", "--dir", folder)]


def run_as(number):
    """The end of the options, and who runs the command that follows: on a hub of root, the user `number`."""
    if os.geteuid() != 0:
        return ["--"]
    may_become = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--"]
    becomes = f"setpriv --reuid {number} --regid {number} --clear-groups --inh-caps=-all --"
    return [*may_become, *becomes.split()]
