"""The checks of the chapter on profiling say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks import profiles
from allranks.check import profiling as checks


@pytest.mark.parametrize(
    "changed, said",
    [
        ({}, "✓ All five causes"),
        ({"A": "small messages", "C": "host sync"}, "3 of 5 are right. In trace A, where in a step"),
        ({"B": "data loader", "D": "slow rank"}, "3 of 5 are right. In trace B, compare how long"),
        ({"E": "host sync"}, "4 of 5 are right. In trace E, does anything compute"),
        ({"D": "bad luck"}, "'bad luck' is not one of"),
        ({"D": None}, "Replace None with the cause of D"),
        ({"F": "slow rank"}, "Answer for each"),
    ],
)
def test_causes(capsys, changed, said):
    assert said in verdict(capsys, checks.causes, checks.LETTERS | changed)


def test_causes_of_nothing(capsys):
    assert "a dictionary" in verdict(capsys, checks.causes, None)


def by_signs(recorded, longest=0.25, count=40):
    if profiles.straggler(recorded) is not None:
        return "slow rank"
    share, one = profiles.shares(recorded)[0], recorded[0]
    if profiles.total([(p.start, p.end) for p in one.phases if p.name == "data"]) > longest * share.whole:
        return "data loader"
    if any(p.start < c.start < p.end for p in one.phases if p.name == "forward" for c in one.collectives):
        return "host sync"
    if len(one.collectives) > count:
        return "small messages"
    return "no overlap" if share.communicating - share.exposed < 0.1 * share.communicating else "none"


def by_rank_two(recorded):
    lengths = [sum(c.end - c.start for c in one.collectives) for one in recorded]
    return "slow rank" if lengths.index(min(lengths)) == 2 else by_signs(recorded)


def by_seconds(recorded):
    one = recorded[0]
    if profiles.total([(p.start, p.end) for p in one.phases if p.name == "data"]) > 0.2:
        return "data loader"
    return by_signs(recorded, longest=10)


def by_communication(recorded):
    share = profiles.shares(recorded)[0]
    return "slow rank" if share.communicating > 0.6 * share.whole else by_signs(recorded)


@pytest.mark.parametrize(
    "answer, said",
    [
        (by_signs, "✓ Every cause is"),
        (by_rank_two, "✗ For"),
        (by_seconds, "a hundred times faster"),
        (by_communication, "'small messages' your function returns 'slow rank'"),
        (lambda recorded: by_signs(recorded, count=1000), "'small messages' your function returns 'none'"),
        (lambda recorded: "none", "'slow rank' your function returns 'none'"),
        (lambda recorded: "slow rank", "the healthy program your function returns 'slow rank'"),
        (lambda recorded: None, "the name of a cause"),
        (lambda recorded: 1 / 0, "✗"),
        (None, "✗"),
    ],
)
def test_cause(capsys, answer, said):
    assert said in verdict(capsys, checks.cause, answer)
