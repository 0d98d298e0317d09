"""Which rank made the others wait? `python -m allranks trace` merges the traces of any job, one file a rank.

The files are what torch.profiler exports, plain or gzipped. The program need not know of this book.
"""

import gzip
import json
import zlib
from pathlib import Path

from allranks import gzipped, profiles

ENDINGS = (".json", ".json.gz")


def traces_of(names, out=None):
    """The contents of the files that are named, and of those with a trace's ending in folders that are named.

    In a folder, traces that `merge` wrote are left out, `out` among them. ValueError if there is no trace.
    """
    found = []
    for path in map(Path, names):
        if path.is_dir():
            files = sorted(one for one in path.iterdir() if one.name.endswith(ENDINGS))
            contents = [(one, _content(one)) for one in files if out is None or not _same(one, out)]
            mine = [(one, content) for one, content in contents if not _is_merged(content)]
            if not mine:
                raise ValueError(
                    f"there is no trace in {path}: the names of traces end in {' or '.join(ENDINGS)}"
                )
            found += mine
        else:
            found.append((path, _content(path)))
    ranks = {}
    for path, content in found:
        rank = _read(path, content).rank
        if rank in ranks:
            both = (
                ranks[rank].name if ranks[rank].name == path.name else f"{ranks[rank].name} and {path.name}"
            )
            raise ValueError(f"two files are from rank {rank}, {both}: give one file a rank, from one run")
        ranks[rank] = path
    return [content for _, content in found]


def _content(path):
    """What a file holds, plain or gzipped, whatever its ending says; ValueError in a sentence if no JSON."""
    try:
        raw = gzipped.read(path)
    except FileNotFoundError:
        raise ValueError(f"there is no file or folder {path}") from None
    except (EOFError, zlib.error):
        raise ValueError(f"{path.name} ends too early: was its rank stopped while it wrote?") from None
    except OSError as error:
        raise ValueError(f"{path.name}: {error.strerror or error}") from None
    if not raw.strip():
        raise ValueError(f"{path.name} is empty: was its rank stopped before it wrote?")
    try:
        return json.loads(raw)
    except ValueError:
        early = raw.lstrip().startswith(b"{")
        why = (
            "ends too early: was its rank stopped while it wrote?"
            if early
            else "is not a trace: it is not JSON"
        )
        raise ValueError(f"{path.name} {why}") from None


def _read(path, content):
    if _is_merged(content):
        raise ValueError(f"{path.name} is a merged trace: give the traces of single ranks")
    try:
        return profiles.read(content)
    except (AttributeError, KeyError, TypeError) as error:
        detail = (
            f"an event has no {error}" if isinstance(error, KeyError) else "its events have an unknown form"
        )
        raise ValueError(f"{path.name}: this is not a trace of torch.profiler: {detail}") from None
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _is_merged(content):
    return isinstance(content, dict) and profiles.MERGED in content


def _same(one, other):
    return one.resolve() == other.resolve()


def report(traces):
    """What the traces of all ranks say, in lines; ValueError if they cannot be put on one clock.

    traces: one a rank, as `traces_of` returns them.
    """
    both = sorted(((profiles.read(trace), trace) for trace in traces), key=lambda pair: pair[0].rank)
    recorded, traces = [list(each) for each in zip(*both, strict=True)]
    ranks = [one.rank for one in recorded]
    missing = sorted(set(range(recorded[0].world_size)) - set(ranks))
    hosts = profiles.hosts_of(traces, recorded)
    aligned, calls = profiles.aligned(recorded, hosts), profiles.matched(recorded)
    shares = profiles.shares(aligned)
    yield f"{len(ranks)} ranks, {len(calls)} collectives, {shares[0].whole * 1e3:.1f} ms"
    if missing:
        yield f"no trace of {_ranks(missing)}"
    yield ""
    yield "rank  computing  exposed  of which waiting  other    clock moved by"
    for share, (least, most) in zip(shares, profiles.shift_bounds(recorded, hosts), strict=True):
        parts = (share.computing, share.exposed, share.waiting, share.other)
        parts = [part / (share.whole or 1) for part in parts]  # a trace may hold no work at all
        middle, half = (least + most) / 2 * 1e3, abs(most - least) / 2 * 1e3
        clock = f"{middle:+.3f} ms, ± {half:.3f}" if half else "0: one machine"
        yield f"{share.rank:4} {parts[0]:10.0%} {parts[1]:8.0%} {parts[2]:17.0%} {parts[3]:6.0%}    {clock}"
    yield ""
    yield _verdict(recorded, calls, missing)


def _verdict(recorded, calls, missing):
    """Who the others wait for, in a sentence, or why nobody can be named."""
    if len(recorded) == 1:
        return "One trace does not show who waits for whom: give the traces of all ranks."
    if not calls:
        return "No collective was recorded, so no wait can be seen."
    late = profiles.straggler(recorded)
    if late is not None:
        last = profiles.last_to_enter(recorded)
        often = f"{last.count(late)} of {len(last)}"
        return f"The others wait for rank {late}: its call is the shortest in {often} collectives."
    if missing:
        return f"None of these ranks stands out. They may all wait for {_ranks(missing)}: find that trace."
    return "No rank stands out: none spends less than half of the others' time in collectives."


def _ranks(ranks):
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def merge(traces, path):
    """Write one trace of all ranks, on one clock, for Perfetto; gzipped if the name ends so.

    ValueError if it cannot be written.
    """
    merged = profiles.chrome(traces)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "wt", encoding="utf-8") as file:
            json.dump(merged, file)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}") from None
