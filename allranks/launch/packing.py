"""How do a function, its arguments and its result cross between processes? As files in shared memory.

`pickling` carries what a notebook cell defines (functions, closures, classes); `torch.save` keeps tensors out
of the pickle, and `torch.load(mmap=True)` maps them, so that no tensor goes through a pipe. The tensor
reductions of torch.multiprocessing would not do: they share memory, and what a rank receives is a copy.
"""

import functools
import inspect
import os
import shutil
import tempfile
from types import FunctionType, MethodType

from allranks import private
from allranks.articles import with_article
from allranks.launch import hints, notebook, pickling

SHARED_MEMORY = "/dev/shm"
ROOM_NEEDED = 1 << 30  # bytes; containers often have 64 MB of shared memory, which a result would fill
MAP_FROM = 1 << 20  # bytes; a smaller file is read
DEEP = 4  # levels of members among which a culprit is looked for


def make_directory():
    """Create a private directory, in shared memory where that has room, and return its path."""
    try:
        roomy = shutil.disk_usage(SHARED_MEMORY).free >= ROOM_NEEDED
    except OSError:
        roomy = False
    return tempfile.mkdtemp(prefix=f"allranks-{os.getpid()}-", dir=SHARED_MEMORY if roomy else None)


def save(value, file):
    """Write `value` to `file`, a path or an open file."""
    import torch

    checked = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)  # it takes longer than the writing
    try:
        torch.save(value, file, pickle_module=pickling, pickle_protocol=5)
    finally:
        torch.serialization.set_crc32_options(checked)


def load(file):
    """Read what `save` wrote to `file`, a path or an open file; tensors arrive on the CPU."""
    import torch

    mapped = isinstance(file, str) and os.path.getsize(file) >= MAP_FROM
    return torch.load(file, map_location="cpu", mmap=mapped, weights_only=False, pickle_module=pickling)


def save_call(fn, args, kwargs, file, *before):
    """Write a function and its arguments, or raise a TypeError that names what cannot be sent."""
    try:
        save((*before, fn, args, kwargs), file)
    except Exception as error:
        culprit, value = _culprit(fn, args, kwargs, before)
        raise _refused(f"{culprit} cannot be sent to the ranks", value, error) from None


def save_result(result, file):
    """Write what a function returned, or raise a TypeError that names what cannot be sent."""
    try:
        save(result, file)
    except Exception as error:
        what = with_article(type(result).__name__)
        raise _refused(f"the result, {what}, cannot be sent back", result, error) from None


def load_result(rank, file):
    """Read the result of a rank, or raise a TypeError that says what cannot be read here."""
    try:
        with private.unheard_meshes() as meshes:
            result = load(file)
    except Exception as error:
        raise _refused(f"the result of rank {rank} cannot be read here", None, error) from None
    if meshes:
        notebook.warn(hints.DTENSORS)
    return result


def _refused(message, value, error):
    refused, member = TypeError(f"{message}: {type(error).__name__}: {error}"), _member(value).lstrip(", ")
    if hint := hints.about(f"{refused} {member} {type(value).__name__}"):
        refused.add_note(hint)
    elif member:
        refused.add_note(f"it is at {member}")
    return refused


def _culprit(fn, args, kwargs, before):
    """Name the argument, or the variable that the function uses, which cannot be pickled; and return it."""
    for value in before:
        if not _can_be_pickled(value):
            return "the way this notebook prints and logs", value
    for name, value in _named_arguments(fn, args, kwargs):
        if not _can_be_pickled(value):
            return f"argument {name!r}", value
    for name, value in _captured(fn):
        if value is not fn and not _can_be_pickled(value):
            return f"variable {name!r}, which {hints.name_of(fn)} uses,", value
    return ("the call", None) if _can_be_pickled(fn) else (f"function {hints.name_of(fn)!r}", fn)


def _member(value, depth=DEEP):
    """Where inside a value that cannot be pickled the reason is: `.lock`, `['x'][3]`, `, lock in f()`."""
    if isinstance(value, dict):
        members = [(f"[{key!r}]", member) for key, member in value.items()]
    elif isinstance(value, (list, tuple)):
        members = [(f"[{index}]", member) for index, member in enumerate(value)]
    elif isinstance(value, (FunctionType, MethodType, functools.partial)):
        members = [(f", {name} in {hints.name_of(value)}()", member) for name, member in _captured(value)]
    else:
        members = [(f".{name}", member) for name, member in getattr(value, "__dict__", {}).items()]
    for name, member in members if depth else ():
        if not _can_be_pickled(member):
            return name + _member(member, depth - 1)
    return ""


def _named_arguments(fn, args, kwargs):
    try:
        names = list(inspect.signature(fn).bind_partial(*args, **kwargs).arguments.items())
    except (TypeError, ValueError):
        names = [(position, value) for position, value in enumerate(args)] + list(kwargs.items())
    return names


def _captured(fn):
    """What travels with a function: what it is bound to, its defaults, the variables that it reads."""
    if isinstance(fn, functools.partial):
        return [*_named_arguments(fn.func, fn.args, fn.keywords), *_captured(fn.func)]
    if isinstance(fn, MethodType):
        return [("self", fn.__self__), *_captured(fn.__func__)]
    if not isinstance(fn, FunctionType):
        return []
    code, defaults = fn.__code__, fn.__defaults__ or ()
    last = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    cells = zip(code.co_freevars, fn.__closure__ or (), strict=True)
    return [
        *zip(last, defaults, strict=True),
        *(fn.__kwdefaults__ or {}).items(),
        *((name, value) for name, cell in cells for value in _contents(cell)),
        *((name, fn.__globals__[name]) for name in private.global_names(code) if name in fn.__globals__),
    ]


def _contents(cell):
    """What a variable of an enclosing function holds, in a list: nothing, if that has not been set."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _can_be_pickled(value):
    try:
        with open(os.devnull, "wb") as nowhere:
            pickling.Pickler(nowhere).dump(value)
    except Exception:
        return False
    return True
