"""Which rank is to blame for a run that hangs, aborts or is wrong? The dumps of torch's flight recorder know.

`write` dumps what this rank has entered, `torchrun -m allranks.hang program.py` does so for a program that
has never heard of this book, and on GPUs torch's watchdog writes such files (TORCH_FR_DUMP_TEMP_FILE).
`python -m allranks hang FILE…` reads them: `findings` says what differs, `table` who entered what.

A dump that `write` makes has what gloo's recorder leaves out, so that torch's own `torchfrtrace` reads it:
the members of the groups. It says also where the rank stands now, and the exception that ended it.
"""

import gzip
import os
import pickle
import re
import sys
import threading
import traceback
import zlib
from collections import namedtuple

from allranks import private
from allranks.launch import recorder, stacks

FOLDER = "hang"  # for the dumps, unless said otherwise
NUMBER = re.compile(r"(\d+)(?:\.gz)?$")  # of the rank, at the end of a dump's name
GZIPPED, PICKLED = b"\x1f\x8b", b"\x80"  # how such files begin
EARLY = re.compile(r"ran out of input|truncated", re.IGNORECASE)
WORLD = "0"  # torch's name for the group of all ranks
PREFIX = "rank_"  # of a dump's name; the rank's number ends it

Dump = namedtuple("Dump", "history stands raised", defaults=((), None))
Dump.__doc__ = """What is known of a rank: its `recorder.History`; the frames in which it stands, innermost
last (empty if nobody knows); and the exception that ended it, unless it only echoes another rank's."""


class NoDump(ValueError):
    """A file is no dump of the flight recorder, or its name does not end in the number of its rank."""


def write(folder=FOLDER, error=None):
    """Dump what this rank has entered, and where its main thread stands, into `folder/rank_N`; return that.

    `error` is the exception that ends the program: then its lines are where the rank stands. A rank that has
    entered nothing keeps an older file.
    """
    dump = recorder.load(private.flight_recorder())
    names = {entry["process_group"][0]: entry["process_group"][1] for entry in dump["entries"]}
    dump["pg_config"] = {
        name: {"name": name, "desc": names.get(name, "undefined"), "ranks": str(ranks)}
        for name, ranks in private.groups().items()
    }
    dump["groups_made"] = private.groups_made()
    failure = stacks.Failure.of(error) if error else None
    dump["stands"] = [[*frame] for frame in (failure.frames if failure else _stands())]
    dump["raised"] = _told(failure) if failure else None
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{PREFIX}{os.environ.get('RANK', 0)}")
    if dump["entries"] or dump["raised"] or not os.path.exists(path):
        with open(path + ".part", "wb") as file:
            pickle.dump(dump, file)
        os.replace(path + ".part", path)  # a reader sees a whole file or none
    return path


def read(paths, refusals=None):
    """Return `{rank: Dump}` for files, and for all files of folders; the rank is the number that ends a name.

    What stands before the number does not matter, a host's name for instance; `.gz` may stand after it.
    Raises NoDump. With a list for `refusals`, it leaves out what it cannot read, and adds the reasons.
    """
    files = []
    for path in map(os.fspath, paths):
        if os.path.isdir(path):
            files += sorted(os.path.join(path, name) for name in os.listdir(path) if NUMBER.search(name))
        else:
            files.append(path)
    if not files:
        raise NoDump(
            f"no dumps in {', '.join(map(str, paths))}: the name of a dump ends in the number of its rank"
        )
    dumps, sources, why = {}, {}, []
    for path in files:
        try:
            rank, dump = _read_one(path)
        except NoDump as refusal:
            if refusals is None:
                raise
            why.append(str(refusal))
            continue
        if rank in dumps and not os.path.samefile(path, sources[rank]):
            raise NoDump(f"{sources[rank]} and {path} are both of rank {rank}: give the dumps of one run")
        dumps[rank], sources[rank] = dump, path
    if not dumps:
        raise NoDump("\n".join(why))
    if refusals is not None:
        refusals += why
    return dict(sorted(dumps.items()))


def of(error):
    """Return `{rank: Dump}` for what `launch` has raised, so that it can be read in the same way."""
    return {rank: Dump(*each) for rank, each in enumerate(zip(error.histories, error.frames, strict=True))}


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
        return "One dump cannot be compared: give those of all ranks."
    return f"{len(dumps)} dumps agree, as far as the recorder knows."


def standing(dumps):
    """Say where each rank stands, for those of which it is known: `rank 1: train.py, line 9, in step`."""
    known = {rank: dump.stands for rank, dump in dumps.items() if stacks.outside(dump.stands)}
    return [
        f"{_ranks(ranks)}: {place}"
        for place, ranks in _by(lambda rank: _in_any_cell(stacks.describe(known[rank])), known).items()
    ]


def table(dumps, last=8):
    """Return lines of text: the `last` collectives of each rank, each with its group, number and line."""
    rows = []
    for rank, dump in dumps.items():
        for call in dump.history.calls[-last:]:
            place = _place(call.place) if call.place else "?"
            rows.append((f"rank {rank}", _group(call), f"{call.number}", recorder.told(call), place))
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return ["  ".join(row).rstrip() for row in padded]


def _read_one(path):
    """The rank whose dump this is, and the dump; NoDump in a sentence."""
    if not os.path.exists(path):
        raise NoDump(f"there is no file or folder {path}")
    number = NUMBER.search(path)
    if not number:
        raise NoDump(f"{path}: the name of a dump ends in the number of its rank")
    try:
        with open(path, "rb") as file:
            content = file.read()
        if content.startswith(GZIPPED):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise NoDump(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not content:
        raise NoDump(f"{path} is empty: its rank was killed before it wrote, or the disk is full")
    try:
        return int(number[1]), _understood(recorder.load(content))
    except (EOFError, pickle.UnpicklingError) as error:
        if content.startswith(PICKLED) and EARLY.search(str(error)):
            raise NoDump(
                f"{path} ends too early: its rank was killed while it wrote, or the disk is full"
            ) from None
        said = str(error) if isinstance(error, recorder.NotPlainData) else "it is not pickled"
    except KeyError as error:
        said = f"it lacks {error}"
    except (AttributeError, IndexError, TypeError, ValueError):
        said = "it holds something else" if content.startswith(PICKLED) else "it is not pickled"
    raise NoDump(f"{path} is no dump of the flight recorder: {said}")


def _understood(dump):
    groups = {name: _members(each["ranks"]) for name, each in dump["pg_config"].items() if each["ranks"]}
    history = recorder.history_of(dump["entries"], groups, dump.get("groups_made"))
    stands = [stacks.Frame(*frame) for frame in dump.get("stands", ())]
    return Dump(history, stands, dump.get("raised"))


def _members(ranks):
    return [int(number) for number in re.findall(r"\d+", ranks)]


def _stands():
    innermost = sys._current_frames().get(threading.main_thread().ident)
    walked = [(frame.f_code, line) for frame, line in traceback.walk_stack(innermost)]
    return [stacks.Frame(code.co_filename, line, code.co_name) for code, line in walked[::-1]]


def _told(failure):
    mine = stacks.outside(failure.frames)
    where = f" at {_place(mine[-1])}" if mine else ""
    first = failure.message.strip().split("\n")[0]
    return None if failure.echo else f"{failure.kind}: {first}{where}"


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
            return [f"the dumps are not of one run: {said}"]
        if len(seen) > 1:
            said = " · ".join(f"{_ranks(ranks)} made it of {_ranks(one)}" for one, ranks in seen.items())
            return [f"group {name} is not the same on all ranks: {said}"]
    return []


def _made(dumps):
    """Ranks that have made more groups than others: `new_group` waits for all ranks, members or not."""
    made = _by(lambda rank: dumps[rank].history.made, [r for r, dump in dumps.items() if dump.history.made])
    if len(made) < 2:
        return []
    times = {number: f"{number - 1} time{'s' * (number != 2)}" for number in made}
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
            parties = _by(lambda rank: _place(calls[rank].place), calls)  # noqa: B023 (used at once)
            lines = " · ".join(f"{_ranks(ranks)} at {place}" for place, ranks in parties.items())
            return [f"{_number(calls)} looks the same on all ranks, but comes from different lines: {lines}"]
    return []


def _entered(what, calls, ranks):
    places = sorted({_place(call.place) for call in calls if call.place})
    return f"{_ranks(ranks)} entered {what}" + (f" at {' and at '.join(places)}" if places else "")


def _place(frame):
    return _in_any_cell(stacks.place(frame))


def _in_any_cell(place):
    """A place without the number of its cell, which is another at every run; the function has a name."""
    return re.sub(r"Cell In\[\d+\], ", "", place)


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
