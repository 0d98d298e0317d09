"""How do a function, its arguments and its result cross between processes? As files in shared memory.

cloudpickle carries what a notebook cell defines (functions, closures, classes); `torch.save` keeps
tensors out of the pickle, and `torch.load(mmap=True)` maps them, so that no tensor goes through a pipe.
"""

import glob
import inspect
import os
import shutil
import tempfile

import cloudpickle

SHARED_MEMORY = "/dev/shm"
ROOM_NEEDED = 1 << 30  # bytes; containers often have 64 MB of shared memory, which a result would fill
MAP_FROM = 1 << 20  # bytes; a smaller file is read


def make_directory():
    """Create a private directory, in shared memory where that has room, and return its path."""
    try:
        roomy = shutil.disk_usage(SHARED_MEMORY).free >= ROOM_NEEDED
    except OSError:
        roomy = False
    return tempfile.mkdtemp(prefix=f"allranks-{os.getpid()}-", dir=SHARED_MEMORY if roomy else None)


def remove_directories(pid):
    """Remove every directory that process `pid` made, and can no longer remove itself."""
    for parent in (SHARED_MEMORY, tempfile.gettempdir()):
        for directory in glob.glob(os.path.join(parent, f"allranks-{pid}-*")):
            shutil.rmtree(directory, ignore_errors=True)


def save(value, file):
    """Write `value` to `file`, a path or an open file."""
    import torch

    checked = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)  # it takes longer than the writing
    try:
        torch.save(value, file, pickle_module=cloudpickle)
    finally:
        torch.serialization.set_crc32_options(checked)


def load(file):
    """Read what `save` wrote to `file`, a path or an open file; tensors arrive on the CPU."""
    import torch

    mapped = isinstance(file, str) and os.path.getsize(file) >= MAP_FROM
    return torch.load(file, map_location="cpu", mmap=mapped, weights_only=False)


def save_call(fn, args, kwargs, path):
    """Write a function and its arguments, or raise a TypeError that names what cannot be sent."""
    try:
        save((fn, args, kwargs), path)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise TypeError(f"{_culprit(fn, args, kwargs)} cannot be sent to the ranks: {reason}") from None


def _culprit(fn, args, kwargs):
    """Name the argument, or the variable that the function uses, which cannot be pickled."""
    for name, value in _named_arguments(fn, args, kwargs):
        if not _can_be_pickled(value):
            return f"argument {name!r}"
    for name, value in _captured(fn):
        if value is not fn and not _can_be_pickled(value):
            return f"variable {name!r}, which {fn.__name__} uses,"
    return f"function {getattr(fn, '__name__', fn)!r}"


def _named_arguments(fn, args, kwargs):
    try:
        names = list(inspect.signature(fn).bind(*args, **kwargs).arguments.items())
    except (TypeError, ValueError):
        names = [(position, value) for position, value in enumerate(args)] + list(kwargs.items())
    return names


def _captured(fn):
    try:
        variables = inspect.getclosurevars(fn)
    except TypeError:
        return []
    return [*variables.nonlocals.items(), *variables.globals.items()]


def _can_be_pickled(value):
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True
