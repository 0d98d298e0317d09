"""The exercises of the chapter PipeDream."""

from allranks import schedules
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_returned

RANKS, WEIGHTS = 8, 16


@exercise
def late(answer):
    """`answer(order)` lists for each backward how many updates lie between its forward and its update."""
    gpipe = schedules.gpipe(2, 3)
    for schedule in (schedules.pipedream(4, 8), gpipe, schedules.pipedream(3, 2)):
        for rank, uses in enumerate(schedules.weights_used(schedule)):
            expected = [use.latest - use.version for use in uses if use.operation.kind == "BW"]
            got = answer(schedule.orders[rank])
            is_returned(got)
            given = " ".join(f"{each.kind[0]}{each.microbatch}" for each in schedule.orders[rank])
            assert list(got) == expected, f"{given}: you return {list(got)}; expected {expected}."
    return "Gradients are 3, 2, 1 and 0 updates late on four ranks, once the pipeline is full."


@exercise
def stash(answer):
    """`answer`: (first, all), the GB of weights that the first of 8 ranks holds, and all ranks together."""
    is_filled(answer, "(first, all)")
    stage = WEIGHTS / RANKS
    held = [versions * stage for versions in schedules.stashed_versions(RANKS)]
    first, together = answer
    assert first != stage, f"{stage:g} GB is one version; batches in flight need the older ones too."
    assert first == held[0], (
        "The first rank holds one version for each batch between forward and backward; you have "
        f"{first / stage:g}."
    )
    assert together != RANKS * first, "The later a rank is in the pipeline, the fewer versions it holds."
    assert together == sum(held), f"Rank 0 is right, but all ranks together do not hold {together:g} GB."
    return f"{first:g} GB on the first rank, as much as the whole model, and {together:g} GB on all ranks."
