"""Is the answer right? One line, ✓ or ✗ with a hint; never an exception, never a hang.

There is a module for each chapter: `check.ranks.swap(my_swap)` runs `my_swap` on ranks and compares what
comes back with what one process computes. A module is imported when it is asked for: ranks need one of them.
"""

import contextlib
import functools
import importlib
import pkgutil
import re

import torch

from allranks.check import passed, time_limit
from allranks.launch import LaunchError, stacks

CELL = re.compile(r"Cell In\[\d+\], ")


def exercise(test):
    """Turn a test into a check that prints one line.

    The test returns the sentence for a right answer; it says what is wrong by a failed `assert`.
    """

    @functools.wraps(test)
    def check(*answers):
        line = verdict(test, *answers)
        if line.startswith("✓"):
            passed.note(test, answers)
        print(line)

    return check


def verdict(test, *answers):
    """Return the line about `answers`: `✓` and what `test` returns, or `✗` and what is wrong.

    Below it, if ranks raised or did not finish, a line for each place where ranks stood.
    """
    if not __debug__:
        return "✗ Nothing was checked: checks are assertions, which `python -O` and PYTHONOPTIMIZE remove."
    try:
        with _one_thread(), time_limit.limited():
            return f"✓ {test(*answers)}"
    except AssertionError as wrong:
        return "\n  ".join((f"✗ {wrong}", *_places(wrong.__cause__)))
    except (LaunchError, time_limit.StillRunning) as failure:
        return "\n  ".join((f"✗ Your function did not finish: {failure}.", *_places(failure)))
    except Exception as error:
        return f"✗ This cannot be checked: {type(error).__name__}: {error}"
    except SystemExit as error:
        said = f"SystemExit: {error}".removesuffix(": ")
        return "\n  ".join((f"✗ Your function did not finish: it raised {said}.", *_raised_at(error)))


def _raised_at(error):
    """The innermost line of the reader's that an exception has passed, if there is one."""
    frames = stacks.outside(stacks.Failure.of(error).frames)
    return [CELL.sub("", stacks.innermost(frames))] if frames else []


def _places(failure):
    """Where ranks stood, without the number of the cell, which is another at every run."""
    return [CELL.sub("", place) for place in getattr(failure, "places", ())]


@contextlib.contextmanager
def _one_thread():
    """Compute what is expected as a rank does: the same sums, and no threads that a busy machine holds up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def __dir__():
    return sorted([*globals(), *_chapters()])


def __getattr__(name):
    if name not in _chapters():
        raise AttributeError(f"no chapter has checks named {name!r}; there are {', '.join(_chapters())}")
    return importlib.import_module(f"allranks.check.{name}")


def _chapters():
    return [module.name for module in pkgutil.iter_modules(__path__)]
