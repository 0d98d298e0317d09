"""Which operation does each rank run in which unit of time? One letter a unit, for a terminal or a board."""


def letters(schedule, timeline):
    """A line for each rank of `timeline`, which `allranks.simulate.simulate` made of `schedule`.

    F is a forward, B an input gradient, W a weight gradient, BW a whole backward, and a dot an idle unit.
    With v chunks a rank, a letter is 1/v of a unit; small letters belong to all chunks but the first.
    """
    p, v = schedule.stages, schedule.chunks
    rows = [["."] * round(v * timeline.makespan) for _ in range(p)]
    for rank, (kind, _, stage), start, end in timeline.slots:
        rows[rank][round(v * start) : round(v * end)] = kind.lower() if stage >= p else kind
    return "\n".join(f"rank {rank}  {''.join(row)}" for rank, row in enumerate(rows))
