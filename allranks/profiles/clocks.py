"""How far are the clocks of two ranks apart? No rank leaves a collective before all have entered it.

A collective of the kinds in SYNCHRONISING needs something from every rank, so on one true clock each end
comes after each start. If δ is what has to be added to a rank's clock, start_i + δ_i ≤ end_j + δ_j for every
pair of ranks and every collective. These are difference constraints: shortest paths give the tightest bounds.
"""

from collections import namedtuple

from .reading import Collective, Recorded, Span

SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")

SLACK = 1e-4
"""Seconds that bounds may contradict each other by: a profiler reads its clock not exactly."""

NANOSECOND = 1e-9

Match = namedtuple("Match", "kind ranks spans")
"""One collective: its kind, the places of its ranks in the list of traces, and their (start, end)."""


def matched(recorded):
    """Which collectives of all ranks are the same one: a list of `Match`, in the order of the calls.

    The k-th collective of a group on one rank is the k-th on the others. ValueError if ranks called
    different ones, or not equally many. Where the trace names no groups, there must be one group only.
    """
    calls, order = {}, []
    for place, each in enumerate(recorded):
        for one in each.collectives:
            if one.kind in ("send_recv", "other"):
                continue
            if one.group not in calls:
                calls[one.group] = {}
                order.append(one.group)
            calls[one.group].setdefault(place, []).append(one)
    found = []
    for group in order:
        places = sorted(calls[group])
        if not group and recorded:
            places = list(range(len(recorded)))
        lists = [calls[group].get(place, []) for place in places]
        _agree(recorded, places, lists)
        for turn, one in enumerate(lists[0]):
            spans = [(mine[turn].start, mine[turn].end) for mine in lists]
            found.append(Match(one.kind, places, spans))
    return found


def _certain(recorded):
    """What is certain of the order of times: a list of (number of a collective, its `Match`).

    Collectives that overlap on some rank are taken together: as one that is entered with the first of them
    and ends with the first, and one that is entered with the last and ends with the last. Two threads of gloo
    carry out what a rank calls, and may begin in either order, so which of them is which is not certain.
    """
    found, several = [], []
    calls = [(turn, one) for turn, one in enumerate(matched(recorded)) if one.kind in SYNCHRONISING]
    for turn, one in calls:
        if several and not (several[-1][1].ranks == one.ranks and _overlap(several, one)):
            found += _first_and_last(several)
            several = []
        several.append((turn, one))
    return found + _first_and_last(several)


def _overlap(several, one):
    """Whether on some rank `one` begins before all of the others have ended."""
    for place, (start, _) in enumerate(one.spans):
        if any(start < other.spans[place][1] for _, other in several):
            return True
    return False


def _first_and_last(several):
    """The two times at which all ranks are certain to meet in collectives that overlap."""
    if len(several) < 2:
        return several
    by_rank = [[other.spans[place] for _, other in several] for place in range(len(several[0][1].ranks))]
    pair = []
    for turn, pick in ((several[0][0], min), (several[-1][0], max)):
        spans = [(pick(start for start, _ in mine), pick(end for _, end in mine)) for mine in by_rank]
        pair.append((turn, Match(several[0][1].kind, several[0][1].ranks, spans)))
    return pair


def _agree(recorded, places, lists):
    """ValueError if the ranks at `places` did not call the same collectives."""
    names = [recorded[place].rank for place in places]
    first = [one.kind for one in lists[0]]
    for rank, mine in zip(names, lists):
        kinds = [one.kind for one in mine]
        if len(kinds) != len(first):
            raise ValueError(
                f"rank {names[0]} has {len(first)} collectives and rank {rank} has {len(kinds)}: "
                "record whole steps, the same ones on all ranks"
            )
        for turn, (one, other) in enumerate(zip(first, kinds)):
            if one != other:
                raise ValueError(
                    f"collective {turn} is {one} on rank {names[0]} and {other} on rank {rank}: if there are "
                    "several groups, the traces must name them, as NCCL's traces do"
                )


def before_it_began(recorded):
    """The first collective that a rank leaves before another has entered it, in words; None if there is none.

    There is one only if clocks differ, since no such collective can end before all ranks are in it.
    """
    origin = _origin(recorded)
    for turn, match in _certain(recorded):
        spans = [
            (start + _since(recorded[place], origin), end + _since(recorded[place], origin))
            for place, (start, end) in zip(match.ranks, match.spans)
        ]
        late = max(range(len(spans)), key=lambda place: spans[place][0])
        early = min(range(len(spans)), key=lambda place: spans[place][1])
        if spans[early][1] < spans[late][0] - NANOSECOND:
            return (
                f"rank {recorded[match.ranks[early]].rank} leaves collective {turn}, {match.kind}, before "
                f"rank {recorded[match.ranks[late]].rank} has entered it: their clocks differ"
            )
    return None


def shift_bounds(recorded, hosts=None):
    """For each rank (least, most): the seconds to add to its clock to have that of the first rank.

    hosts: the name of each rank's machine, whose ranks share a clock; None if each rank has its own.
    The first rank has (0.0, 0.0). Both are None for a rank that shares no collective with the first, not even
    through others. Cost: ranks² for each collective.
    """
    names = list(range(len(recorded))) if hosts is None else list(hosts)
    clocks = [names.index(name) for name in names]
    count, origin = len(recorded), _origin(recorded)
    since = [_since(each, origin) for each in recorded]
    apart = [[None] * count for _ in range(count)]  # apart[j][i]: the most that δ_i − δ_j can be
    for _, match in _certain(recorded):
        for j, (_, end) in zip(match.ranks, match.spans):
            for i, (start, _) in zip(match.ranks, match.spans):
                most, one, other = end + since[j] - start - since[i], clocks[i], clocks[j]
                if one != other and (apart[other][one] is None or most < apart[other][one]):
                    apart[other][one] = most
    most = _shortest(apart)
    least = _shortest([[apart[i][j] for i in range(count)] for j in range(count)])
    bounds = [(None if low is None else -low if low else 0.0, high) for low, high in zip(least, most)]
    return [bounds[clock] for clock in clocks]


def _shortest(apart):
    """The length of the shortest path from 0 to each place; None where there is none (Bellman and Ford)."""
    count = len(apart)
    far = [0.0] + [None] * (count - 1)
    for _ in range(count - 1):
        changed = False
        for j in range(count):
            for i in range(1, count):
                if far[j] is not None and apart[j][i] is not None:
                    through = far[j] + apart[j][i]
                    if far[i] is None or through < far[i]:
                        far[i], changed = through, True
        if not changed:
            break
    return far[:count]


def same_origin(recorded):
    """The traces with times since the earliest origin of any; clocks are as they were."""
    origin = _origin(recorded)
    return [_from(shifted(each, _since(each, origin)), origin) for each in recorded]


def aligned(recorded, hosts=None):
    """The traces on one clock, from 0 on: a list of `Recorded`. hosts: as in `shift_bounds`.

    Each clock is moved to the middle of its bounds. ValueError for a rank without bounds, or with impossible
    ones.
    """
    moved, origin = [], _origin(recorded)
    for each, (least, most) in zip(recorded, shift_bounds(recorded, hosts)):
        if least is None or most is None:
            raise ValueError(f"rank {each.rank} shares no collective with rank {recorded[0].rank}")
        if least > most + SLACK:
            raise ValueError(
                f"no shift of rank {each.rank}'s clock puts its collectives in order: either clocks drift, "
                "or several groups communicate and the traces do not name them"
            )
        moved.append(shifted(each, (least + most) / 2 + _since(each, origin)))
    first = min((_begin(each) for each in moved), default=0.0)
    return [_from(shifted(each, -first), origin) for each in moved]


def shifted(recorded, seconds):
    """The trace with `seconds` added to every time in it; its origin is as it was."""
    return Recorded(
        recorded.rank,
        recorded.world_size,
        recorded.origin,
        [Span(name, start + seconds, end + seconds) for name, start, end in recorded.phases],
        [(start + seconds, end + seconds) for start, end in recorded.computing],
        [
            Collective(one.kind, one.group, one.start + seconds, one.end + seconds)
            for one in recorded.collectives
        ],
    )


def _from(recorded, origin):
    """The trace with another origin, and its times as they are."""
    rank, world_size, _, phases, computing, collectives = recorded
    return Recorded(rank, world_size, origin, phases, computing, collectives)


def _begin(recorded):
    """When the first thing of a trace begins."""
    starts = [phase.start for phase in recorded.phases] + [start for start, _ in recorded.computing]
    return min(starts + [one.start for one in recorded.collectives], default=0.0)


def _origin(recorded):
    return min((each.origin for each in recorded), default=0)


def _since(recorded, origin):
    """Seconds from `origin` to the trace's own; whole nanoseconds first, as floats have not enough digits."""
    return (recorded.origin - origin) / 1e9
