"""Sleeping stages run the operations of a schedule, in its order, and take no less than their naps."""

import pytest

from allranks import launch, schedules, sleeping
from allranks.parallel import zero_bubble
from allranks.simulate import simulate

UNIT = 0.01
NAPS = {"F": UNIT, "B": UNIT, "W": UNIT}


@pytest.mark.parametrize("make", [schedules.gpipe, schedules.one_f_one_b])
def test_a_whole_backward_is_one_operation(make):
    logs = launch(sleeping.run, make(2, 3), {"F": UNIT, "BW": 2 * UNIT}, world_size=2)
    measured = sleeping.quickest(logs, UNIT)
    planned = sleeping.planned(simulate(make(2, 3)))
    assert [bar[:2] for bar in measured] == [bar[:2] for bar in planned]
    assert sleeping.furthest_apart(planned, measured) >= 0
    for _, kind, start, end in measured:
        assert end - start >= (1 if kind == "F" else 2) - 1e-6


def test_both_halves_of_a_backward_are_logged_and_chunks_sleep_their_share():
    schedule = schedules.zb_v(2, 4)
    more = {"kind": zero_bubble.SplitStage, "passes": zero_bubble.PASSES}
    logs = launch(sleeping.run, schedule, NAPS, repeats=2, **more, world_size=2)
    assert [len(each) for each in logs] == [2, 2]
    measured = sleeping.quickest(logs, UNIT)
    assert [bar[:2] for bar in measured] == [bar[:2] for bar in sleeping.planned(simulate(schedule))]
    assert all(end - start >= 0.5 - 1e-6 for *_, start, end in measured)


def test_the_quickest_repeat_is_taken_and_starts_at_zero():
    slow, quick = [("F", 5.0, 9.0)], [("F", 20.0, 22.0)]
    assert sleeping.quickest([[slow, quick], [slow, quick]], 2) == [(0, "F", 0, 1), (1, "F", 0, 1)]


def test_two_schedules_are_not_compared():
    one, other = [(0, "F", 0, 1)], [(0, "BW", 0, 1)]
    assert sleeping.furthest_apart(one, [(0, "F", 0, 1.5)]) == 0.5
    with pytest.raises(ValueError, match="differ in operations or order"):
        sleeping.furthest_apart(one, other)
