"""The exercises of the chapter on debugging: an escape room of three dumps, and ranks that should agree."""

import json
from importlib import resources

import torch
import torch.distributed as dist

from allranks import launch
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_returned
from allranks.hang import Dump
from allranks.launch import recorder, stacks

SECONDS = 20.0
ROOMS = "rooms.json"  # recorded from programs on real ranks: tests/support/rooms.py


def room(number):
    """The dumps of a room, 1 to 3, or of a problem, 4, as `hang.read` returns them; its program is gone."""
    stored = json.loads((resources.files(__package__) / ROOMS).read_text(encoding="utf-8"))[number - 1]
    return {int(rank): _dump(*one) for rank, one in stored.items()}


def _dump(history, stands):
    calls, groups, made = history
    calls = [recorder.Call(*call[:-1], stacks.Frame(*call[-1])) for call in calls]
    return Dump(recorder.History(calls, groups, made), [stacks.Frame(*frame) for frame in stands])


@exercise
def first_room(answer):
    """`answer`: (rank, line), of the rank that left the common path and the line that it entered instead."""
    rank, line = _pair(answer)
    assert rank == 2, (
        f"Rank {rank} did what two others did: find the first sequence number at which the four ranks differ."
    )
    assert line != 6, "The others are at line 6: what did rank 2 enter under the same sequence number?"
    assert line == 11, f"At line {line}, rank 2 did nothing that the others did not."
    return "Rank 2, line 11: it evaluates while the others train."


@exercise
def second_room(answer):
    """`answer`: (rank, line), of the rank at which all chains of waiting end, and where it stands."""
    rank, line = _pair(answer)
    assert rank not in (1, 3), (
        f"Rank {rank} waits for its pair, and its partner waits for another rank: follow the chain."
    )
    assert rank != 0, "Rank 0 waits in line 10 for its column: who else is in that column, and where is it?"
    assert rank == 2, f"Rank {rank} is not one of the four."
    assert line == 15, f"Rank 2 is not at line {line}: look up its last call in the table."
    return "Rank 2, line 15: it saves alone, and both chains of waiting ranks end there."


@exercise
def third_room(answer):
    """`answer`: (rank, line), of the rank whose calls come in another order, and its first such line."""
    rank, line = _pair(answer)
    assert rank == 1, (
        f"Rank {rank} runs the same lines as two others: compare the lines, since names and shapes agree."
    )
    assert line != 11, "Line 11 is the second of the two calls: at which number do the lines first differ?"
    assert line == 10, (
        f"At line {line}, rank 1 does what the others do under the same number, or makes no call."
    )
    return "Rank 1, line 10: it added two tensors in the opposite order, so their sums were mixed up."


@exercise
def agree(answer):
    """`answer(named)` on ranks: the sorted names of those tensors that are not equal on all ranks."""

    def on_rank(differing):
        named = {name: torch.arange(3.0) for name in ("bias", "head", "weight")}
        for name, where in differing.items():
            if dist.get_rank() == where:
                named[name][1] += 0.5
        named["nan"] = torch.full((2,), float("nan"))
        before = {name: tensor.clone() for name, tensor in named.items()}
        found = answer(named)
        kept = all(torch.equal(named[n].nan_to_num(7), before[n].nan_to_num(7)) for n in before)
        return found, kept

    for differing in ({}, {"head": 2}, {"head": 0, "bias": 1}):
        for rank, (found, kept) in enumerate(launch(on_rank, differing, world_size=3, timeout=SECONDS)):
            is_returned(found)
            assert kept, "The tensors have changed: compare copies, or gathered values."
            assert list(found) == sorted(differing), (
                f"Rank {rank} returned {list(found)}; expected {sorted(differing)}. All ranks return the "
                "same list, even ranks whose tensors are right, and here NaN equals NaN."
            )
    return "All ranks return the same list of tensors that differ."


def _pair(answer):
    assert isinstance(answer, tuple | list) and len(answer) == 2, "Give a rank and a line: (3, 14)."
    for number in answer:
        is_filled(number)
        assert isinstance(number, int), f"{number!r} is not the number of a rank or a line."
    return answer
