"""What has each rank entered? torch's flight recorder knows, and two ranks may disagree.

The n-th collective of a group has to be the same on all its ranks: one operation, as many elements, one
dtype. The first n where it is not is the cause of what comes after: an abort, a deadlock, a wrong sum. The
recorder keeps the last 2,000 collectives (TORCH_FR_BUFFER_SIZE); it knows neither roots nor the kind of a
reduction, and with gloo no sends and receives.
"""

import json
import math
import zlib
from collections import defaultdict, namedtuple

from allranks import private

UNEVEN = ("scatter", "all_to_all")  # collectives into which each rank may bring tensors of its own shapes
ROOTED = {"gather": "output_sizes", "scatter": "input_sizes"}  # only the root has these

History = namedtuple("History", "calls groups", defaults=([], None))
History.__doc__ = """What a rank has entered: its `calls`, in order; and `groups`, those that it is a member
of, as `{name: ranks}`, or None if nobody knows."""

Call = namedtuple("Call", "group members life number name shapes dtypes is_root")
Call.__doc__ = """A collective: the `number`-th of the `life`-th group of this name; `members` is None if
nobody knows them any more, and then it is not compared."""


def write(path):
    """Write to `path` what this rank has entered; return digests, or None if those could not be compared."""
    entries = json.loads(private.flight_recorder()).get("entries", [])
    history = _read(entries, private.groups())
    with open(path, "w", encoding="utf-8") as file:
        json.dump(history, file)
    if any(call.is_root for call in history.calls) or (entries and entries[0]["record_id"] > 0):
        return None  # roots differ from others, and what was lost may differ
    digests = defaultdict(int)
    for call in history.calls:
        if call.members:
            group = str(call[:3])
            digests[group] = zlib.crc32(str(call[3:7]).encode(), digests[group])
    return dict(digests)


def read(path):
    """Return the `History` in a file that `write` wrote; an empty one if there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            calls, groups = json.load(file)
    except (OSError, ValueError):
        return History()
    return History([Call(*call) for call in calls], groups)


def agree(digests):
    """True if ranks, whose `write` returned these, have entered the same."""
    if None in digests:
        return False
    seen = {}
    return all(seen.setdefault(group, one) == one for each in digests for group, one in each.items())


def disagreement(histories, shapes=False):
    """Return `{what: ranks}` for the first collective that ranks entered differently, or None.

    Tensors of other shapes are as good if they have as many elements, unless `shapes` have to agree too.
    """
    together = {}
    for rank, history in enumerate(histories):
        for call in history.calls:
            if call.members:
                together.setdefault(str(call[:4]), {})[rank] = call
    for calls in together.values():
        forms = {}
        for rank, call in calls.items():
            sizes = call.shapes if shapes else [math.prod(shape) for shape in call.shapes]
            forms.setdefault(str((call.name, call.dtypes, sizes)), []).append(rank)
        if len(forms) > 1:
            return {_told(calls[ranks[0]]): ranks for ranks in forms.values()}
        roots = [rank for rank, call in calls.items() if call.is_root]
        if len(roots) > 1:
            return {f"{calls[roots[0]].name} as its root": roots}
    return None


def _read(entries, groups):
    entries = [entry for entry in entries if not entry["is_p2p"]]
    lives = defaultdict(dict)  # of each name, the groups that have had it
    for entry in entries:
        lives[entry["process_group"][0]].setdefault(entry["pg_id"], len(lives[entry["process_group"][0]]))
    return History([_call(entry, lives[entry["process_group"][0]], groups) for entry in entries], groups)


def _call(entry, lives, groups):
    (group, kind), life = entry["process_group"], lives[entry["pg_id"]]
    is_last = life == len(lives) - 1
    members = "all" if kind == "default_pg" else groups.get(group) if is_last else None
    name = entry["profiling_name"].partition(":")[2]
    shapes, dtypes = ([], []) if name in UNEVEN else (entry["input_sizes"], entry["input_dtypes"])
    is_root = name in ROOTED and bool(entry[ROOTED[name]])
    number = entry["collective_seq_id"]
    return Call(group, members, life, number, name, shapes, dtypes, is_root)


def _told(call):
    pairs = zip(call.shapes, call.dtypes, strict=False)
    tensors = ", ".join(f"{tuple(shape)} {dtype}" for shape, dtype in pairs)
    return f"{call.name} with {tensors}" if tensors else call.name
