"""What has each rank entered? torch's flight recorder knows, and two ranks may disagree.

The n-th collective of a group has to be the same on all its ranks: one operation, tensors of one shape.
The first n where it is not is the cause of what comes after: an abort, a deadlock, a wrong sum.
"""

import json
from collections import namedtuple

UNEVEN = ("scatter", "all_to_all")  # collectives into which each rank may bring tensors of its own shapes

Collective = namedtuple("Collective", "group number name tensors")  # "0", 1, "all_reduce", "(3,) Float"


def write(path):
    """Write to `path` all that this rank has entered."""
    import torch

    # Private, and the only place that says what a rank has really entered; torch is pinned.
    with open(path, "wb") as file:
        file.write(torch._C._distributed_c10d._dump_fr_trace_json())


def read(path):
    """Return the collectives in a file that `write` wrote, in order; none if there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            entries = json.load(file).get("entries", [])
    except (OSError, ValueError):
        return []
    return [_collective(entry) for entry in entries if not entry["is_p2p"]]


def disagreement(histories):
    """Return `{what: ranks}` for the first collective that ranks entered differently, or None.

    `histories[rank]` is what `read` returned for that rank.
    """
    calls = {}
    for rank, history in enumerate(histories):
        for call in history:
            entered = f"{call.name} with {call.tensors}" if call.tensors else call.name
            calls.setdefault((call.group, call.number), {}).setdefault(entered, []).append(rank)
    return next((call for call in calls.values() if len(call) > 1), None)


def _collective(entry):
    name = entry["profiling_name"].partition(":")[2]
    pairs = zip(entry["input_sizes"], entry["input_dtypes"], strict=False)
    tensors = [] if name in UNEVEN else [f"{tuple(shape)} {dtype}" for shape, dtype in pairs]
    return Collective(entry["process_group"][0], entry["collective_seq_id"], name, ", ".join(tensors))
