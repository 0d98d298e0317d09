"""The exercises of the chapter 1F1B."""

from allranks import schedules, simulate
from allranks.check import exercise
from allranks.check.stubs import is_number, is_returned

RANKS, MICROBATCHES, SHARE = 8, 32, 0.05


@exercise
def order(answer):
    """`answer(stages, microbatches)` lists each rank's operations, as 1F1B with a flush runs them."""
    for stages, microbatches in ((4, 8), (2, 4), (4, 2), (5, 5), (1, 3)):
        given = f"With {stages} stages and {microbatches} micro-batches"
        got = answer(stages, microbatches)
        is_returned(got)
        orders = tuple(tuple(schedules.Operation(*each) for each in mine) for mine in got)
        schedule = schedules.Schedule("yours", stages, microbatches, 1, orders)
        try:
            schedules.check(schedule, sends="paired")
            timeline = simulate.simulate(schedule)
        except ValueError as wrong:
            raise AssertionError(f"{given}: {wrong}.") from None
        peaks = schedules.peak_activations("one_f_one_b", stages, microbatches)
        for rank, (held, most) in enumerate(zip(timeline.peak_activations, peaks, strict=True)):
            assert held <= most, (
                f"{given} it is legal, but rank {rank} keeps {held:g} micro-batches, and {most} are enough."
            )
        expected = schedules.bubble_of_ideal("one_f_one_b", stages, microbatches)
        assert timeline.bubble_of_ideal <= expected + 1e-9, (
            f"{given} it is legal and keeps few, but the bubble is {timeline.bubble_of_ideal:.1%} of the "
            f"ideal time, and {expected:.1%} can be reached."
        )
    return "Legal, free of deadlock, p - r micro-batches on rank r, and a bubble of (p-1)/m."


@exercise
def chunks(answer):
    """`answer` is the fewest chunks with which 8 ranks and 32 micro-batches have a bubble of at most 5 %."""
    is_number(answer)
    assert answer == int(answer) and answer > 0, "Chunks are whole, and there is at least one."

    def bubble(v):
        return schedules.bubble_of_ideal("interleaved", RANKS, MICROBATCHES, chunks=int(v))

    share = bubble(answer)
    assert share <= SHARE, f"With v = {answer} the bubble is still {share:.1%} of the ideal time."
    less = bubble(answer - 1) if answer > 1 else 1
    assert less > SHARE, f"{answer} are enough, but fewer are, too: v = {answer - 1} has {less:.1%}."
    return f"v = {answer}: {share:.1%}, where 1F1B has {bubble(1):.1%}."
