"""The checks of Saving safely say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import saving as checks


@pytest.mark.parametrize(
    "answer, said",
    [
        (245, "✓ 245 GB"),
        (122.5, "one save"),
        (30.625, "one rank's share"),
        (15.3125, "one copy of one rank"),
        (280, "not 16"),
        (980, "whole job"),
        (1960, "whole job"),
        (245e9, "right in bytes"),
        (100, "GB is not right"),
        (None, "None"),
        ("245", "✗"),
    ],
)
def test_host(capsys, answer, said):
    assert said in verdict(capsys, checks.host, answer)


def number(name):
    return int(name.removeprefix("step_").removesuffix(".part"))


def right(names, damaged, count):
    complete = {name for name in names if not name.endswith(".part")}
    good = sorted(complete - damaged, key=number)[-count:]
    last = max(map(number, complete), default=-1)
    return {name for name in names - set(good) if name in complete or number(name) <= last}


def in_the_alphabet(names, damaged, count):
    return set(sorted(names)[:-count])


def by_number(names, damaged, count):
    return set(sorted(names, key=number)[:-count])


def no_parts(names, damaged, count):
    return {name for name in right(names, damaged, count) if not name.endswith(".part")}


def all_parts(names, damaged, count):
    return right(names, damaged, count) | {name for name in names if name.endswith(".part")}


@pytest.mark.parametrize(
    "answer, said",
    [
        (right, "✓ The newest good checkpoints stay"),
        (lambda *given: sorted(right(*given)), "✓"),
        (in_the_alphabet, "step_10 has to stay"),
        (by_number, "with step_10 damaged and count=2, step_8 has to stay"),
        (no_parts, "step_7.part, step_10.part can be deleted as well"),
        (all_parts, "step_12.part, which ranks may be writing"),
        (lambda names, damaged, count: {"step_1"}, "which does not exist"),
        (lambda names, damaged, count: "step_8", "of names, not a"),
        (lambda names, damaged, count: None, "None; return a"),
        (None, "✗"),
    ],
)
def test_removable(capsys, answer, said):
    assert said in verdict(capsys, checks.removable, answer)
