"""What else of the notebook has a rank? Its variables, the place where it stands, how it computes and logs.

`environment`, `place` and `manner` collect it for the ranks of one launch; on each of them `go` and `behave`
apply it. What is not here does not travel: above all what a cell has set in an imported module, which a rank
imports anew, as the file is now.
"""

import importlib.util
import logging
import operator
import os
import struct
import sys

from allranks import private
from allranks.launch import notebook, stacks

# Who has an `fp32_precision` in `torch.backends`, each after those that it inherits from.
PRECISE = (
    "", "cudnn", "mkldnn", "cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv",
    "mkldnn.rnn",
)  # fmt: skip

_installed = set()  # modules that nobody edits
_imported = {}  # other modules: their specification, and when the file was written that is imported


def environment(kernels, directory, world_size, port):
    """The kernel's variables, and what torchrun would set, without what differs between ranks.

    The world holds MASTER_PORT bound and does not listen on it: nobody else can take it, and a function that
    calls `init_process_group` or `rpc.init_rpc` itself can.
    """
    loopback = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
    return {
        **({"GLOO_SOCKET_IFNAME": loopback, "TP_SOCKET_IFNAME": loopback} if loopback else {}),
        "OMP_NUM_THREADS": "1",
        **kernels,
        "ALLRANKS_WORLD": directory,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0",
    }


def path():
    """Return the places to import from; Python passes over those that are no strings."""
    return [str.__str__(each) for each in sys.path if isinstance(each, str)]


def place():
    """Return the working directory and the places to import from."""
    try:
        return os.getcwd(), path()
    except FileNotFoundError:
        raise FileNotFoundError(
            "the working directory of this process was deleted: go to one that exists (os.chdir(…) or %cd)."
        ) from None


def go(place):
    """Stand where the kernel stands."""
    directory, sys.path[:] = place
    os.chdir(directory)


def manner():
    """Return how torch computes and prints here, and how `logging` shows messages."""
    import torch

    numpy = sys.modules.get("numpy")
    streams = [each for each in logging.root.handlers if type(each) is logging.StreamHandler]
    return {
        "torch": private.print_options(),
        "numpy": numpy and numpy.get_printoptions(),
        "dtype": torch.get_default_dtype(),
        "matmul": private.matmul_precision(),
        "precisions": [owner.fp32_precision for owner in _precise()],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "level": logging.root.level,
        "handlers": [(each.level, each.formatter, each.filters) for each in streams],
    }


def behave(manner):
    """Compute, print and log as the kernel does."""
    import torch

    torch.set_printoptions(**manner["torch"])
    if manner["numpy"]:
        import numpy

        numpy.set_printoptions(**manner["numpy"])
    torch.set_default_dtype(manner["dtype"])
    if manner["matmul"] not in (None, private.matmul_precision()):  # to set it also sets what stands below
        torch.set_float32_matmul_precision(manner["matmul"])
    for owner, precision in zip(_precise(), manner["precisions"], strict=True):
        if owner.fp32_precision != precision:  # what is inherited stays so
            owner.fp32_precision = precision
    if manner["deterministic"]:  # it imports torch's compiler
        torch.use_deterministic_algorithms(True, warn_only=manner["warn_only"])
    logging.root.setLevel(manner["level"])
    for level, formatter, filters in manner["handlers"]:
        handler = logging.StreamHandler(sys.stderr)
        handler.setLevel(level)
        handler.setFormatter(formatter)
        handler.filters = filters
        logging.root.addHandler(handler)


def _precise():
    import torch

    return [operator.attrgetter(name)(torch.backends) if name else torch.backends for name in PRECISE]


def warn_of_edits():
    """Warn of files that were edited after they were imported here: ranks import them as they are now."""
    for name in sys.modules.keys() - _installed:
        spec, file = (getattr(sys.modules[name], each, None) for each in ("__spec__", "__file__"))
        is_code = spec is not None and isinstance(file, str) and file.endswith(".py")  # not a stub
        if not is_code or file.startswith(notebook.HERE) or stacks.is_installed(file):  # ours is forked
            _installed.add(name)
            continue
        try:
            written = int(os.stat(file).st_mtime)
        except OSError:
            continue
        known, then = _imported.get(name, (None, None))
        if known is not spec:  # imported, or reloaded, since the last look
            then = _compiled(file) or written
        _imported[name] = spec, written
        if then != written:
            notebook.warn(
                f"{os.path.basename(file)} was edited after it was imported here: ranks run the new version, "
                f"the notebook the old one. importlib.reload({name}) loads the new one here."
            )


def _compiled(file):
    """When the source was written that Python's cache of `file` was made from, in seconds; or None."""
    if sys.dont_write_bytecode:  # a cache may be older than what is imported
        return None
    try:
        path = importlib.util.cache_from_source(file)
        with open(path, "rb") as cache:
            _, flags, written = struct.unpack("<4sII", cache.read(12))
    except (OSError, NotImplementedError, struct.error):
        return None
    return written if flags == 0 and os.access(path, os.W_OK) else None
