"""The exercises of the chapter GPipe."""

from allranks import schedules, simulate
from allranks.check import exercise
from allranks.check.stubs import is_number, is_returned

STAGES, SHARE = 8, 0.05


@exercise
def paper_order(answer):
    """`answer(stages, microbatches)` lists each rank's operations: backwards from the last to the first."""
    for stages, microbatches in ((1, 1), (2, 3), (4, 8)):
        given = f"With {stages} stages and {microbatches} micro-batches"
        got = answer(stages, microbatches)
        is_returned(got)
        orders = tuple(tuple(schedules.Operation(*each) for each in order) for order in got)
        assert len(orders) == stages, f"{given}, there are {len(orders)} orders; expected one for each rank."
        schedule = schedules.Schedule("yours", stages, microbatches, 1, orders)
        try:
            schedules.check(schedule)
        except ValueError as wrong:
            raise AssertionError(f"{given}: {wrong}.") from None
        for rank, order in enumerate(orders):
            kinds = [each.kind for each in order]
            assert kinds == ["F"] * microbatches + ["BW"] * microbatches, (
                f"{given}, rank {rank} should run all forwards and then all backwards."
            )
            forwards = [each.microbatch for each in order[:microbatches]]
            backwards = [each.microbatch for each in order[microbatches:]]
            assert forwards == sorted(forwards), (
                f"{given}, forwards should go from the first micro-batch to the last."
            )
            assert backwards == sorted(backwards)[::-1], (
                f"{given}, rank {rank} runs backwards in the order {backwards}; the last should come first."
            )
        bubble = simulate.simulate(schedule).bubble_of_total
        expected = schedules.bubble_of_total("gpipe", stages, microbatches)
        assert abs(bubble - expected) < 1e-9, f"{given}, the bubble is {bubble:.3f}; expected {expected:.3f}."
    return "The order is legal and free of deadlock, and its bubble is the same."


@exercise
def enough(answer):
    """`answer` is the fewest micro-batches with which 8 stages idle at most 5 % of the time."""
    is_number(answer)
    assert answer == int(answer) and answer > 0, "Give a whole number of micro-batches, at least one."
    assert answer != 140, "That is 5 % of the *ideal* time. The question is about the whole."
    share = schedules.bubble_of_total("gpipe", STAGES, int(answer))
    assert share <= SHARE, f"With {answer} micro-batches the ranks still idle {share:.1%} of the time."
    less = schedules.bubble_of_total("gpipe", STAGES, int(answer) - 1) if answer > 1 else 1
    assert less > SHARE, (
        f"{answer} are enough, but so are fewer: with {answer - 1} the ranks idle {less:.2%}."
    )
    return f"{answer} micro-batches leave {share:.2%} idle; that is m = 16.6 p."
