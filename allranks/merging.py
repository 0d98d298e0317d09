"""Which rank made the others wait? `python -m allranks trace` merges the traces of any job, one file a rank.

The files are what torch.profiler exports, plain or gzipped. The program need not know of this book.
"""

import gzip
import json
from pathlib import Path

from allranks import profiles

ENDINGS = (".json", ".json.gz")


def files_of(names):
    """The files that are named, and those with a trace's ending in folders that are named, sorted."""
    found = []
    for path in map(Path, names):
        if path.is_dir():
            found += sorted(one for one in path.iterdir() if one.name.endswith(ENDINGS))
        else:
            found.append(path)
    return found


def load(path):
    """The content of one file; ValueError with its name if it is no trace of a rank."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            content = json.load(file)
        profiles.read(content)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name}: {getattr(error, 'strerror', None) or error}") from None
    return content


def report(traces):
    """What the traces of all ranks say, in lines; ValueError if they cannot be put on one clock."""
    both = sorted(((profiles.read(trace), trace) for trace in traces), key=lambda pair: pair[0].rank)
    recorded, traces = [list(each) for each in zip(*both, strict=True)]
    ranks = [one.rank for one in recorded]
    twice = [rank for rank in dict.fromkeys(ranks) if ranks.count(rank) > 1]
    if twice:
        raise ValueError(f"two files are of rank {twice[0]}: give one a rank, of one run")
    missing = sorted(set(range(recorded[0].world_size)) - set(ranks))
    hosts = profiles.hosts_of(traces, recorded)
    aligned, calls = profiles.aligned(recorded, hosts), profiles.matched(recorded)
    shares = profiles.shares(aligned)
    yield f"{len(ranks)} ranks, {len(calls)} collectives, {shares[0].whole * 1e3:.1f} ms"
    if missing:
        yield f"no trace of rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
    yield ""
    yield "rank  computing  exposed  of which waiting  other    clock moved by"
    for share, (least, most) in zip(shares, profiles.shift_bounds(recorded, hosts), strict=True):
        parts = [part / share.whole for part in (share.computing, share.exposed, share.waiting, share.other)]
        middle, half = (least + most) / 2 * 1e3, abs(most - least) / 2 * 1e3
        clock = f"{middle:+.3f} ms, ± {half:.3f}" if half else "0: one machine"
        yield f"{share.rank:4} {parts[0]:10.0%} {parts[1]:8.0%} {parts[2]:17.0%} {parts[3]:6.0%}    {clock}"
    yield ""
    late = profiles.straggler(recorded)
    if late is None:
        yield "No rank stands out: none spends less than half of the others' time in collectives."
    else:
        last = profiles.last_to_enter(recorded)
        often = f"{last.count(late)} of {len(last)}"
        yield f"The others wait for rank {late}: its collectives are the shortest, {often}."


def merge(traces, path):
    """Write one trace of all ranks, on one clock, for Perfetto; gzipped if the name ends so."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        json.dump(profiles.chrome(traces), file)
