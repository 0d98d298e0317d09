"""Which rank is to blame for a run that hangs, aborts or is wrong? The dumps of torch's flight recorder know.

`write` dumps what this rank has entered, `torchrun -m allranks.hang program.py` does so for a program that
has never heard of this book, and on GPUs torch's watchdog writes such files (TORCH_FR_DUMP_TEMP_FILE).
`python -m allranks hang FILE…` reads them: `findings` says what differs, `table` who entered what.
"""

from allranks.hang.dumps import FOLDER, Dump, NoDump, line_of, of, read, without_cell, write
from allranks.launch import recorder, stacks

__all__ = [
    "FOLDER",
    "Dump",
    "NoDump",
    "findings",
    "nothing_found",
    "of",
    "read",
    "standing",
    "table",
    "write",
]

WORLD = "0"  # torch's name for the group of all ranks


def findings(dumps):
    """Say in a few sentences what is wrong, the likeliest cause first; an empty list if nothing is.

    An exception comes before everything that other ranks make of it. Then come groups that ranks have made
    differently, the first collective that they entered differently, and ranks that others wait for. If all
    agree, collectives are named that ranks entered from different lines: two that were swapped look like it.
    """
    found = [f"{_ranks([rank])} raised {dump.raised}" for rank, dump in dumps.items() if dump.raised]
    found += _without_dump(dumps) + _groups(dumps)
    entered = _together(dumps)
    differing = next((calls for calls in entered if recorder.parties(calls)), None)
    if differing:
        odd = recorder.parties(differing)
        parties = [_entered(what, [differing[rank] for rank in ranks], ranks) for what, ranks in odd.items()]
        found.append(f"{_number(differing)} differs: {' · '.join(parties)}")
    else:
        found += _late(entered, dumps)
    return found or _made(dumps) or _lines(entered)


def nothing_found(dumps):
    """Say why `findings` is empty, and what to do then."""
    if not any(dump.history.calls for dump in dumps.values()):
        return "No rank has entered a collective, as far as the recorder knows."
    if len(dumps) == 1:
        return "One dump cannot be compared: give the dumps of all ranks."
    return f"{len(dumps)} dumps agree, as far as the recorder knows."


def standing(dumps):
    """Say where each rank stands, for those of which it is known: `rank 1: train.py, line 9, in step`."""
    known = {rank: dump.stands for rank, dump in dumps.items() if stacks.outside(dump.stands)}
    return [
        f"{_ranks(ranks)}: {place}"
        for place, ranks in _by(lambda rank: without_cell(stacks.describe(known[rank])), known).items()
    ]


def table(dumps, last=8):
    """Return lines of text: the `last` collectives of each rank, each with its group, number and line."""
    rows = []
    for rank, dump in dumps.items():
        for call in dump.history.calls[-last:]:
            place = line_of(call.place) if call.place else "?"
            rows.append((f"rank {rank}", _group(call), f"{call.number}", recorder.told(call), place))
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return ["  ".join(row).rstrip() for row in padded]


def _together(dumps):
    return recorder.together({rank: dump.history for rank, dump in dumps.items()})


def _without_dump(dumps):
    groups = [ranks for dump in dumps.values() for ranks in (dump.history.groups or {}).values()]
    missing = sorted({rank for ranks in groups for rank in ranks} - set(dumps))
    return [f"{_ranks(missing)} left no dump"] if missing and dumps else []


def _groups(dumps):
    """Groups of one name whose members differ: each rank has made its own alone, and torch numbers them."""
    members = {}
    for rank, dump in dumps.items():
        for name, ranks in (dump.history.groups or {}).items():
            members.setdefault(name, {}).setdefault(tuple(ranks), []).append(rank)
    for name, seen in members.items():
        if len(seen) > 1 and name == WORLD:
            said = " · ".join(f"{_ranks(ranks)} of a run of {len(one)}" for one, ranks in seen.items())
            return [f"the dumps are not from one run: {said}"]
        if len(seen) > 1:
            said = " · ".join(f"{_ranks(ranks)} made it from {_ranks(one)}" for one, ranks in seen.items())
            return [f"group {name} is not the same on all ranks: {said}"]
    return []


def _made(dumps):
    """Ranks that have made more groups than others: `new_group` waits for all ranks, members or not."""
    made = _by(lambda rank: dumps[rank].history.made, [r for r, dump in dumps.items() if dump.history.made])
    if len(made) < 2:
        return []
    times = {number: {2: "once", 3: "twice"}.get(number, f"{number - 1} times") for number in made}
    return [" · ".join(f"{_ranks(ranks)} called new_group {times[n]}" for n, ranks in made.items())]


def _late(entered, dumps):
    """The last collective of each group, if members of it have not entered it."""
    last = {}
    for calls in entered:
        one = next(iter(calls.values()))
        last[one[:3] if one.members == "all" else (*one[:1], *one.members, one.life)] = calls
    found = []
    for calls in last.values():
        one = next(iter(calls.values()))
        members = dumps if one.members == "all" else one.members
        late = [rank for rank in members if rank not in calls and rank in dumps]
        if late:
            where = _entered(recorder.told(one), calls.values(), list(calls))
            found.append(f"{_ranks(late)} did not enter {_number(calls)}: {where}")
    return found


def _lines(entered):
    """The first collective that ranks entered alike and from different lines."""
    for calls in entered:
        if len({call.place for call in calls.values() if call.place}) > 1:
            parties = _by(lambda rank: line_of(calls[rank].place), calls)  # noqa: B023 (used at once)
            lines = " · ".join(f"{_ranks(ranks)} at {place}" for place, ranks in parties.items())
            return [f"{_number(calls)} looks the same on all ranks, but comes from different lines: {lines}"]
    return []


def _entered(what, calls, ranks):
    places = sorted({line_of(call.place) for call in calls if call.place})
    return f"{_ranks(ranks)} entered {what}" + (f" at {' and at '.join(places)}" if places else "")


def _number(calls):
    one = next(iter(calls.values()))
    return f"collective {one.number} of {_group(one)}"


def _group(call):
    if call.members == "all":
        return "all ranks"
    return _ranks(call.members) if call.members else f"group {call.group}"


def _ranks(ranks):
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _by(key, ranks):
    found = {}
    for rank in ranks:
        found.setdefault(key(rank), []).append(rank)
    return found
