"""How small can a trace be? A few kB of what a picture needs, and one file of everything for a viewer."""

from .clocks import before_it_began, shift_bounds
from .reading import Collective, Recorded, Span, read

MOST_JOINED = 100
"""Microseconds between two operators that a compact trace does not show."""


MERGED = "mergedRanks"
"""The entry by which a trace that `chrome` returned is told from a rank's own."""


def packed(recorded, joined=MOST_JOINED):
    """The traces as lists of whole microseconds, which JSON can hold: {"ranks": [...]}; see `unpacked`.

    joined: pauses in the computation of up to so many microseconds are left out.
    """
    kinds, names = [], []
    for each in recorded:
        kinds += [one.kind for one in each.collectives if one.kind not in kinds]
        names += [one.name for one in each.phases if one.name not in names]
    kinds, names = _different(kinds), _different(names)
    ranks = []
    for each in recorded:
        computing = []
        for start, end in each.computing:
            start, end = _micro(start), _micro(end)
            if computing and start - computing[-1][1] <= joined:
                computing[-1][1] = end
            else:
                computing.append([start, end])
        phases, sent = [], []
        for name, start, end in each.phases:
            phases += [names.index(name), _micro(start), _micro(end) - _micro(start)]
        for kind, _, start, end in each.collectives:
            sent += [kinds.index(kind), _micro(start), _micro(end) - _micro(start)]
        flat = []
        for start, end in computing:
            flat += [start, end - start]
        ranks.append([each.rank, phases, flat, sent])
    return {"names": names, "kinds": kinds, "world_size": len(recorded), "ranks": ranks}


def unpacked(data):
    """The `Recorded` of each rank from what `packed` returned; groups and origins are gone."""
    found = []
    for rank, phases, computing, sent in data["ranks"]:
        found.append(
            Recorded(
                rank,
                data["world_size"],
                0,
                [
                    Span(data["names"][k], start / 1e6, (start + long) / 1e6)
                    for k, start, long in _by(3, phases)
                ],
                [(start / 1e6, (start + long) / 1e6) for start, long in _by(2, computing)],
                [
                    Collective(data["kinds"][k], "", start / 1e6, (start + long) / 1e6)
                    for k, start, long in _by(3, sent)
                ],
            )
        )
    return found


def _by(count, flat):
    """The list cut into tuples of `count`."""
    return [tuple(flat[at : at + count]) for at in range(0, len(flat), count)]


def _different(words):
    found = []
    for word in words:
        if word not in found:
            found.append(word)
    return found


def _micro(seconds):
    """Whole microseconds."""
    return int(seconds * 1e6 + 0.5)


def hosts_of(traces, recorded):
    """The name of each rank's machine, for `aligned`; None if a trace does not say it, or if it misleads.

    It misleads if ranks of machines with one name leave a collective before others have entered it. recorded:
    what `read` returns for each of `traces`.
    """
    hosts = [trace.get("host_name") for trace in traces]
    for host in _different(hosts):
        mine = [each for each, name in zip(recorded, hosts) if name == host]
        if not host or before_it_began(mine):
            return None
    return hosts


def chrome(traces):
    """One trace of all ranks, on the clock of the lowest, for Perfetto or chrome://tracing: a dictionary.

    traces: the contents of the files, one a rank. Every event is kept; each process is named after its rank.
    """
    traces = sorted(traces, key=lambda trace: read(trace).rank)
    recorded = [read(trace) for trace in traces]
    bounds = shift_bounds(recorded, hosts_of(traces, recorded))
    base = min(trace.get("baseTimeNanoseconds", 0) for trace in traces)
    events = []
    for trace, each, (least, most) in zip(traces, recorded, bounds):
        if least is None or most is None:
            raise ValueError(f"rank {each.rank} shares no collective with rank {recorded[0].rank}")
        later = (trace.get("baseTimeNanoseconds", 0) - base) / 1000 + (least + most) / 2 * 1e6
        processes = []
        for event in trace["traceEvents"]:
            if event["pid"] not in processes:
                processes.append(event["pid"])
            events.append(_of_rank(event, each.rank, processes.index(event["pid"]), later))
    about = {"baseTimeNanoseconds": base, "displayTimeUnit": "ms", "schemaVersion": 1}
    about[MERGED] = [each.rank for each in recorded]
    about["traceEvents"] = events
    return about


def _of_rank(event, rank, process, later):
    """The event as one of the rank's, `later` microseconds later."""
    changed = dict(event)
    changed["pid"] = 1000 * rank + process
    if "ts" in event:
        changed["ts"] = event["ts"] + later
    if "id" in event:
        changed["id"] = f"{rank}.{event['id']}"
    if event.get("name") == "process_name":
        changed["args"] = {"name": f"rank {rank} · {event['args']['name']}"}
    if event.get("name") == "process_sort_index":
        changed["args"] = {"sort_index": 1000 * rank + process}
    return changed
