"""Try many answers to tasks of Lab 05 in the same worlds: ranks that import DeepSpeed are expensive.

A check is asked once to learn what it wants to run, and again, with the same random numbers, to judge what
that has returned.
"""

import contextlib
import copy
import os
import random
import sys
import tempfile

import cloudpickle
import pytest
import torch.distributed as dist

from allranks import check, launch
from allranks.check.lab_05 import common

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Asked(BaseException):
    """What a check wants to run: a function, its arguments, and the number of ranks."""


def together(calls):
    """On a rank: what each call returns, or the sentence of its error."""
    results = []
    for test, args in calls:
        try:
            results.append((True, test(*args)))
        except Exception as error:
            results.append((False, f"{type(error).__name__}: {error}"))
        dist.barrier()
    return results


def asked(test, answers, known, seed, folder):
    """The line of the check, or Asked; `known` has what its worlds so far have returned."""
    known = iter(known)

    def replay(test, *args, world_size, **_):
        for ranks in known:
            failed = [found for worked, found in ranks if not worked]
            assert not failed, failed[0]
            return [copy.deepcopy(found) for _, found in ranks]
        raise Asked(test, args, world_size)

    random.seed(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "launch", replay)
        patch.setattr(tempfile, "TemporaryDirectory", lambda: contextlib.nullcontext(str(folder)))
        return check.verdict(test.__wrapped__, *answers)


def lines_of(cases, folder):
    """{name: the line} for `cases` {name: (task, answers)}, in their order, with as few worlds as steps."""
    known, lines = {name: [] for name in cases}, {}
    while len(lines) < len(cases):
        wanted = {}
        for name in [name for name in cases if name not in lines]:
            task, answers = cases[name]
            os.makedirs(folder / name, exist_ok=True)
            try:
                lines[name] = asked(getattr(check.lab_05, task), answers, known[name], name, folder / name)
            except Asked as call:
                wanted[name] = call.args
        for size in {size for _, _, size in wanted.values()}:
            names = [name for name in wanted if wanted[name][2] == size]
            calls = [wanted[name][:2] for name in names]
            ranks = launch(together, calls, world_size=size, timeout=240, backend="gloo")
            for name, *found in zip(names, *ranks, strict=True):
                known[name].append(found)
    return {name: lines[name] for name in cases}
