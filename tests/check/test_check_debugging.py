"""The checks of the chapter on debugging: right answers, and wrong ones with a hint; the rooms are real."""

import json
from importlib import resources

import pytest
import rooms
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks import hang
from allranks.check import debugging as checks


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_rooms_dumps_are_those_of_its_program(number):
    stored = json.loads((resources.files("allranks.check") / checks.ROOMS).read_text(encoding="utf-8"))
    assert rooms.record(rooms.PROGRAMS[number - 1]) == stored[number - 1]


def test_what_the_tool_says_of_the_rooms_is_true_and_not_always_the_answer():
    first, second, third = (hang.findings(checks.room(number)) for number in (1, 2, 3))
    assert "rank 2 entered all_gather with (2,) Float at train.py, line 11, in evaluate" in first[0]
    assert len(second) == 4 and second[0].startswith("rank 0 did not enter")  # and it is not to blame
    assert "rank 1 at train.py, line 10, in main" in third[0]


@pytest.mark.parametrize(
    "check, answer, said",
    [
        (checks.first_room, (2, 11), "✓ Rank 2, line 11"),
        (checks.first_room, (0, 6), "two others did"),
        (checks.first_room, (2, 6), "The others are at line"),
        (checks.first_room, (2, 16), "did nothing that the"),
        (checks.second_room, (2, 15), "✓ Rank 2, line 15"),
        (checks.second_room, (1, 6), "follow the chain"),
        (checks.second_room, (0, 10), "who else is in that column"),
        (checks.second_room, (2, 6), "last call"),
        (checks.second_room, (4, 15), "not one of the four"),
        (checks.third_room, (1, 10), "✓ Rank 1, line 10"),
        (checks.third_room, (0, 13), "the same lines"),
        (checks.third_room, (1, 11), "the second of the two"),
        (checks.third_room, (1, 13), "same number, or"),
        (checks.third_room, (None, None), "Replace None with a number"),
        (checks.third_room, None, "Give a rank and a line"),
        (checks.third_room, ("1", 10), "not the number of a"),
    ],
)
def test_rooms(capsys, check, answer, said):
    assert said in verdict(capsys, check, answer)


def by_bytes(named):
    own = {name: tensor.numpy().tobytes() for name, tensor in named.items()}
    everybodys = [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, own)
    return sorted(name for name in own if len({each[name] for each in everybodys}) > 1)


def by_mean(named):
    """NaN is not equal to itself."""
    found = []
    for name, tensor in sorted(named.items()):
        mean = tensor.clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        equal = torch.tensor(float(torch.equal(mean, tensor)))
        dist.all_reduce(equal, op=dist.ReduceOp.MIN)
        found += [] if equal else [name]
    return found


def with_rank_0(named):
    """A rank compares itself with rank 0, and does not tell the others."""
    found = []
    for name, tensor in sorted(named.items()):
        first = tensor.clone()
        dist.broadcast(first, src=0)
        found += [] if torch.equal(first.nan_to_num(7), tensor.nan_to_num(7)) else [name]
    return found


def in_place(named):
    found = by_bytes(named)
    for tensor in named.values():
        dist.broadcast(tensor, src=0)
    return found


def on_one_rank(named):
    return by_bytes(named) if dist.get_rank() == 0 else []


@pytest.mark.parametrize(
    "answer, said",
    [
        (by_bytes, "✓ All ranks return the same list of"),
        (by_mean, "NaN equals NaN"),
        (with_rank_0, "All ranks return the same list, even"),
        (in_place, "have changed"),
        (on_one_rank, "did not finish"),
        (lambda named: None, "returns nothing"),
        (lambda named: sorted(named), "expected []. All ranks return the same"),
        (None, "✗"),
    ],
)
def test_agree(capsys, monkeypatch, answer, said):
    monkeypatch.setattr(checks, "SECONDS", 1.5 if answer is on_one_rank else checks.SECONDS)
    assert said in verdict(capsys, checks.agree, answer)
