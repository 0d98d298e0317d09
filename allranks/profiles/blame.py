"""What did each rank do with the time, and which rank did the others wait for?

Collectives that synchronise end on all ranks at nearly the same moment, whoever came first. So a rank that
comes late spends the least time in them, and its share of communication is the smallest of all.
"""

from collections import namedtuple

from .clocks import SYNCHRONISING, matched
from .intervals import difference, total, union

Share = namedtuple("Share", "rank whole computing communicating exposed waiting other")
"""Seconds of one rank: whole = computing + exposed + other.

whole: from the first to the last moment of any rank. communicating: with at least one collective. exposed: of
these, the ones without computation. waiting: of the exposed ones, those before the last rank had entered.
other: neither computation nor communication: Python, a data loader, a lock, or nothing.
"""

WAITED = 0.5
"""A straggler spends less than this share of what the others spend in collectives, in the median."""


def shares(recorded):
    """The `Share` of each rank, for traces on one clock (`aligned`)."""
    first, last = window(recorded)
    found = []
    for each, waited in zip(recorded, waits(recorded)):
        sent = union([(one.start, one.end) for one in each.collectives])
        computing, exposed = total(each.computing), total(difference(sent, each.computing))
        whole = last - first
        found.append(
            Share(
                each.rank,
                whole,
                computing,
                total(sent),
                exposed,
                total(difference(waited, each.computing)),
                whole - computing - exposed,
            )
        )
    return found


def window(recorded):
    """(first, last): the first and the last moment of all traces, in seconds."""
    starts, ends = [], []
    for each in recorded:
        for start, end in [one[-2:] for one in each.phases + each.collectives] + each.computing:
            starts.append(start)
            ends.append(end)
    return (min(starts), max(ends)) if starts else (0.0, 0.0)


def waits(recorded):
    """For each rank the intervals between its entering a collective and the last rank's; on one clock."""
    found = [[] for _ in recorded]
    for match in matched(recorded):
        if match.kind in SYNCHRONISING:
            last = max(start for start, _ in match.spans)
            for place, (start, end) in zip(match.ranks, match.spans):
                if start < min(last, end):
                    found[place].append((start, min(last, end)))
    return [union(mine) for mine in found]


def last_to_enter(recorded):
    """For each collective that synchronises, the rank that was in it for the shortest time.

    No clock is compared with another: a duration is measured on one rank.
    """
    found = []
    for match in matched(recorded):
        if match.kind in SYNCHRONISING:
            lengths = [end - start for start, end in match.spans]
            found.append(recorded[match.ranks[lengths.index(min(lengths))]].rank)
    return found


def straggler(recorded, share=WAITED):
    """The rank that the others wait for: the one with the least time in collectives, or None.

    None if it spends at least `share` of what the others spend, in the median. Clocks need not be aligned.
    """
    spent = [0.0 for _ in recorded]
    for match in matched(recorded):
        if match.kind in SYNCHRONISING:
            for place, (start, end) in zip(match.ranks, match.spans):
                spent[place] += end - start
    if len(spent) < 2:
        return None
    place = spent.index(min(spent))
    others = sorted(spent[:place] + spent[place + 1 :])
    return recorded[place].rank if spent[place] < share * others[len(others) // 2] else None
