"""The exercises of the chapter Saving safely."""

from allranks.check import exercise
from allranks.check.stubs import is_number

CASES = (  # names, damaged, count, what may go
    ({"step_9", "step_10", "step_8"}, set(), 2, {"step_8"}),
    ({"step_9", "step_10", "step_8"}, {"step_10"}, 2, {"step_10"}),
    (
        {"step_9", "step_10", "step_10.part", "step_12.part", "step_7.part"},
        set(),
        1,
        {"step_9", "step_10.part", "step_7.part"},
    ),
    ({"step_2", "step_4", "step_4.part", "step_6.part"}, {"step_4"}, 1, {"step_4", "step_4.part"}),
    ({"step_3.part"}, set(), 1, set()),
)


@exercise
def host(answer):
    """`answer`: gigabytes of staged copies on a node, with two saves of 70 billion parameters in flight."""
    is_number(answer)
    whole = 70 * 14
    right = 2 * whole / 8
    assert abs(answer - right * 1e9) > 1, "That is right in bytes; give it in gigabytes."
    assert abs(answer - right / 2) > 0.5, (
        "That is one save; the first copy is still there when the next is made."
    )
    assert abs(answer - right / 8) > 0.5, "That is one rank's share; eight ranks use the memory of one node."
    assert abs(answer - right / 16) > 0.5, "That is one copy of one rank; count eight ranks and two saves."
    assert abs(answer - 2 * 70 * 16 / 8) > 0.5, "Gradients are not saved: 14 bytes a parameter, not 16."
    assert min(abs(answer - whole), abs(answer - 2 * whole)) > 0.5, (
        "That is the whole job; how much of it is on one of the eight nodes?"
    )
    assert abs(answer - right) < 0.5, (
        f"{answer:g} GB is not right: how large is one checkpoint, and what share of it does a node copy?"
    )
    return f"{right:g} GB: two copies of an eighth of 980 GB."


@exercise
def removable(answer):
    """`answer(names, damaged, count)`: the set of names of checkpoints that may be deleted."""
    for names, damaged, count, right in CASES:
        found = answer(set(names), set(damaged), count)
        assert found is not None, "The function returned None; return a set of names."
        assert not isinstance(found, str | int | float), (
            "Return a set of names, not a single name or a number."
        )
        found = set(found)
        where = (
            f"Of {_listed(names)}, with {_listed(damaged) if damaged else 'none'} damaged and count={count},"
        )
        assert found <= names, f"{where} you delete {_listed(found - names)}, which does not exist."
        parts = {name for name in found - right if name.endswith(".part")}
        assert not parts, f"{where} you delete {_listed(parts)}, which ranks may be writing now."
        lost = found - right
        assert not lost, f"{where} {_listed(lost)} has to stay."
        left = right - found
        assert not left, f"{where} {_listed(left)} can be deleted as well."
    return "The newest good checkpoints stay, and so does one that is being written."


def _listed(names):
    return ", ".join(sorted(names, key=lambda name: (len(name), name)))
