"""How long does anything of a kind run, and how long does nothing hide it? Unions and differences.

An interval is a pair (start, end) in seconds, start ≤ end. What overlaps counts once.
"""


def union(intervals):
    """The same moments as sorted intervals that neither overlap nor touch; empty ones are left out."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        elif start < end:
            merged.append((start, end))
    return merged


def difference(intervals, holes):
    """The moments of `intervals` that lie in none of `holes`, as sorted intervals."""
    left, holes, first = [], union(holes), 0
    for start, end in union(intervals):
        while first < len(holes) and holes[first][1] <= start:
            first += 1
        turn = first
        while turn < len(holes) and holes[turn][0] < end:
            if start < holes[turn][0]:
                left.append((start, holes[turn][0]))
            start = holes[turn][1]
            turn += 1
        if start < end:
            left.append((start, end))
    return left


def total(intervals):
    """Seconds in which at least one of `intervals` runs."""
    return sum(end - start for start, end in union(intervals))
