"""Has a check passed with these functions already? Then a lab's milestone need not run it again.

Functions count as the same if they, and all of the notebook that they use, are pickled to the same bytes.
"""

import contextlib
import hashlib
import io

from allranks.launch import pickling

_known = set()


def note(test, answers):
    """Remember that `test` has passed with `answers`."""
    if (digest := _digest(test, answers)) is not None:
        _known.add(digest)


def before(test, answers):
    """Whether `test` has passed in this process with the same `answers`."""
    return _digest(test, answers) in _known


def _digest(test, answers):
    """A text that changes with the functions and with what they use; None for what cannot be pickled."""
    with contextlib.suppress(Exception):
        file = io.BytesIO()
        pickling.Pickler(file).dump(answers)
        return f"{test.__module__}.{test.__qualname__} {hashlib.sha256(file.getvalue()).hexdigest()}"
    return None
