"""Answers to a lab's tasks as students write them: right ones, and edits of a right one that are wrong.

A lab's `test_check_lab_…` tries the most telling ones every day. The `test_lab_…` of its tasks try all every
night, and when a file changed that they look at (tools/stamps.py).

`RIGHT` of a test lists answers, each a tuple of functions. `WRONG` has, for functions of the first of them,
edits by the name of the mistake: what the check says about it, and then pairs (old, new) of source text.
"""

import importlib
import inspect
import random
import sys

import cloudpickle
import together

from allranks import check
from allranks.check.lab_06 import common


def edited(first, names, pairs, namespace, title):
    """The functions of `first` (by name), those in `names` with `pairs` of text exchanged."""
    source = "\n\n".join(inspect.getsource(first[name]) for name in names)
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in source, f"{title}: there is no {old!r} to be replaced"
        source = source.replace(old, new)
    namespace = namespace | {"__name__": "__main__"}  # so that it travels to ranks by value
    exec(compile(source, f"<{title}>", "exec"), namespace)
    return tuple(namespace[name] if name in names else first[name] for name in first)


def cases(module, only=None):
    """(answers, part of the line) for all answers of the test `module`; for the mistakes in `only`, if given,
    and the first right answer."""
    namespace = vars(sys.modules[module])
    cloudpickle.register_pickle_by_value(sys.modules[module])
    found = [(answers, "✓") for answers in namespace["RIGHT"][: 1 if only else None]]
    first = {answer.__name__: answer for answer in namespace["RIGHT"][0]}
    for names, edits in namespace["WRONG"].items():
        names = (names,) if isinstance(names, str) else names
        for title, (hint, *pairs) in edits.items():
            if only is None or title in only:
                found.append((edited(first, names, pairs, namespace, title), hint))
    assert only is None or len(found) == 1 + len(only), f"{module} lacks some of {only}"
    return found


def judged_on_ranks(task, module):
    """Assert what `task` says about the answers of a module, many of them in one world."""
    random.seed(6)
    together.assert_verdicts(task, cases(module))


def judged_here(task, module, monkeypatch, only=None):
    """The same in this process, for a task that runs one rank: a world would cost more than its work."""
    monkeypatch.setattr(common, "run_on_ranks", lambda test, *args, world_size, **_: [test(*args)])
    wrong = []
    for answers, part in cases(module, only):
        random.seed(6)
        line = check.verdict(task.__wrapped__, *answers)
        if part not in line or (line[0] == "✓") != (part == "✓") or "NameError" in line:
            wrong.append(f"{part!r} is not in: {line}")
    assert not wrong, "\n".join(wrong)


def the_telling_ones(lab, mistakes):
    """Assert what `lab` says of each task's first right answer and of some mistakes; all share worlds."""
    random.seed(6)
    tries, parts = [], []
    for task, names in mistakes.items():
        module = importlib.import_module(f"test_{lab.__name__.split('.')[-1]}_{task}").__name__
        for answers, part in cases(module, names):
            tries.append((getattr(lab, task), answers, False))
            parts.append(part)
    for part, line in zip(parts, together.verdicts(tries), strict=True):
        assert part in line, line
