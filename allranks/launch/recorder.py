"""What has each rank entered? torch's flight recorder knows, and two ranks may disagree.

The n-th collective of a group has to be the same on all its ranks: one operation, as many elements, one
dtype. The first n where it is not is the cause of what comes after: an abort, a deadlock, a wrong sum. The
recorder keeps the last 2,000 collectives (TORCH_FR_BUFFER_SIZE); it knows neither roots nor the kind of a
reduction, and with gloo no sends and receives. `allranks.hang` reads its files after any program.
"""

import io
import json
import math
import os
import pickle
import zlib
from collections import defaultdict, namedtuple

from allranks import private
from allranks.launch import stacks

UNEVEN = ("scatter", "all_to_all")  # collectives into which each rank may bring tensors of its own shapes
ROOTED = {"gather": "output_sizes", "scatter": "input_sizes"}  # only the root has these

History = namedtuple("History", "calls groups made", defaults=([], None, None))
History.__doc__ = """What a rank has entered: its `calls`, in order; `groups`, those that it is a member of,
as `{name: ranks}`, and how many it has `made`, whether a member or not; each None if nobody knows."""

Call = namedtuple("Call", "group members life number name shapes dtypes is_root place", defaults=(None,))
Call.__doc__ = """A collective: the `number`-th of the `life`-th group of this name; `members` is None if
nobody knows them any more, and then it is not compared. `place` is the reader's own line that entered it, a
`stacks.Frame`; lines are not compared."""


def write(path):
    """Write to `path` what this rank has entered; return digests, or None if those could not be compared."""
    entries = load(private.flight_recorder()).get("entries", [])
    history = history_of(entries, private.groups(), private.groups_made())
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(history, file)
    os.replace(f"{path}.new", path)  # who reads it meanwhile, or after this rank was ended, finds it whole
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
            calls, groups, made = json.load(file)
    except (OSError, ValueError):
        return History()
    return History([Call(*call[:-1], call[-1] and stacks.Frame(*call[-1])) for call in calls], groups, made)


def load(pickled):
    """Return what is in a file of the recorder: plain data. A file that holds anything else is refused."""
    return _PlainData(io.BytesIO(pickled)).load()


class NotPlainData(pickle.UnpicklingError):
    """A file names a function that reading it would call."""


class _PlainData(pickle.Unpickler):
    """Unpickling calls any function that a file names; these files need none."""

    def find_class(self, module, name):
        raise NotPlainData(f"it asks for {module}.{name}")


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
    for calls in together(dict(enumerate(histories))):
        if odd := parties(calls, shapes):
            return odd
    return None


def together(histories):
    """Return what ranks entered together: `{rank: call}` for each collective, in the order of the first rank.

    `histories` maps ranks to what they have entered.
    """
    found = {}
    for rank, history in histories.items():
        for call in history.calls:
            if call.members:
                found.setdefault(str(call[:4]), {})[rank] = call
    return list(found.values())


def parties(calls, shapes=False):
    """Return `{what: ranks}` if ranks entered one collective, {rank: call}, differently, or None."""
    forms = {}
    for rank, call in calls.items():
        sizes = call.shapes if shapes else [math.prod(shape) for shape in call.shapes]
        forms.setdefault(str((call.name, call.dtypes, sizes)), []).append(rank)
    if len(forms) > 1:
        return {told(calls[ranks[0]]): ranks for ranks in forms.values()}
    roots = [rank for rank, call in calls.items() if call.is_root]
    return {f"{calls[roots[0]].name} as its root": roots} if len(roots) > 1 else None


def told(call):
    """Say what a rank entered: `all_reduce with (3,) Float`."""
    pairs = zip(call.shapes, call.dtypes, strict=False)
    tensors = ", ".join(f"{tuple(shape)} {dtype}" for shape, dtype in pairs)
    return f"{call.name} with {tensors}" if tensors else call.name


def history_of(entries, groups, made=None):
    """Return the `History` in the recorder's entries; `groups` maps the names of groups to their ranks."""
    entries = [entry for entry in entries if not entry["is_p2p"]]
    lives = defaultdict(dict)  # of each name, the groups that have had it
    for entry in entries:
        lives[entry["process_group"][0]].setdefault(entry["pg_id"], len(lives[entry["process_group"][0]]))
    calls = [_call(entry, lives[entry["process_group"][0]], groups) for entry in entries]
    return History(calls, groups, made)


def _call(entry, lives, groups):
    (group, kind), life = entry["process_group"], lives[entry["pg_id"]]
    is_last = life == len(lives) - 1
    members = "all" if kind == "default_pg" else groups.get(group) if is_last else None
    name = entry["profiling_name"].partition(":")[2]
    shapes, dtypes = ([], []) if name in UNEVEN else (entry["input_sizes"], entry["input_dtypes"])
    is_root = name in ROOTED and bool(entry[ROOTED[name]])
    number = entry["collective_seq_id"]
    frames = [stacks.Frame(frame["filename"], frame["line"], frame["name"]) for frame in entry["frames"]]
    place = next(iter(stacks.outside(frames)), None)  # the recorder lists the innermost frame first
    return Call(group, members, life, number, name, shapes, dtypes, is_root, place)
