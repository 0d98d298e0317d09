"""What is in a rank's dump, and who writes it? The files that `python -m allranks hang` reads.

A dump that `write` makes has what gloo's recorder leaves out, so that torch's own `torchfrtrace` reads it:
the members of the groups. It says also where the rank stands now, and the exception that ended it.
"""

import os
import pickle
import re
import sys
import threading
import traceback
import zlib
from collections import namedtuple

from allranks import gzipped, private
from allranks.launch import recorder, stacks

FOLDER = "hang"  # for the dumps, unless said otherwise
NUMBER = re.compile(r"(\d+)(?:\.gz)?$")  # of the rank, at the end of a dump's name
PICKLED = b"\x80"  # how such a file begins
EARLY = re.compile(r"ran out of input|truncated", re.IGNORECASE)
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
            f"no dumps in {', '.join(map(str, paths))}: the name of a dump must end in the number of its rank"
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
            raise NoDump(f"{sources[rank]} and {path} are both from rank {rank}: give the dumps of one run")
        dumps[rank], sources[rank] = dump, path
    if not dumps:
        raise NoDump("\n".join(why))
    if refusals is not None:
        refusals += why
    return dict(sorted(dumps.items()))


def of(error):
    """Return `{rank: Dump}` for what `launch` has raised, so that it can be read in the same way."""
    return {rank: Dump(*each) for rank, each in enumerate(zip(error.histories, error.frames, strict=True))}


def line_of(frame):
    """Where a frame stands, without the number of its cell, which is another at every run."""
    return without_cell(stacks.place(frame))


def without_cell(place):
    """A place without the number of its cell; the function has a name."""
    return re.sub(r"Cell In\[\d+\], ", "", place)


def _read_one(path):
    """The rank whose dump this is, and the dump; NoDump in a sentence."""
    if not os.path.exists(path):
        raise NoDump(f"there is no file or folder {path}")
    number = NUMBER.search(path)
    if not number:
        raise NoDump(f"{path}: the name of a dump must end in the number of its rank")
    try:
        content = gzipped.read(path)
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
    except (AttributeError, IndexError, MemoryError, OverflowError, RecursionError, TypeError, ValueError):
        said = "it holds something else" if content.startswith(PICKLED) else "it is not pickled"
    raise NoDump(f"{path} is not a dump of the flight recorder: {said}")


def _understood(dump):
    groups = {name: _members(each["ranks"]) for name, each in dump["pg_config"].items() if each["ranks"]}
    history = recorder.history_of(dump["entries"], groups, dump.get("groups_made"))
    stands = [stacks.Frame(*frame) for frame in dump.get("stands", ())]
    understood = Dump(history, stands, dump.get("raised"))
    if not _is_sound(understood):
        raise TypeError("a value of another type than the recorder writes")
    return understood


def _is_sound(dump):
    """Whether all is of the types that are compared and printed later; a damaged file may hold any."""
    history = dump.history
    frames = [*dump.stands, *(call.place for call in history.calls if call.place)]
    numbers = [frame.line for frame in frames] + [call.number for call in history.calls]
    words = [word for frame in frames for word in (frame.filename, frame.name)]
    for call in history.calls:
        numbers += [size for shape in call.shapes for size in shape]
        words += [call.group, call.name, *call.dtypes]
    numbers += [history.made or 0]
    words += [dump.raised or "", *history.groups]
    return all(isinstance(one, int) for one in numbers) and all(isinstance(one, str) for one in words)


def _members(ranks):
    return [int(number) for number in re.findall(r"\d+", ranks)]


def _stands():
    innermost = sys._current_frames().get(threading.main_thread().ident)
    walked = [(frame.f_code, line) for frame, line in traceback.walk_stack(innermost)]
    return [stacks.Frame(code.co_filename, line, code.co_name) for code, line in walked[::-1]]


def _told(failure):
    mine = stacks.outside(failure.frames)
    where = f" at {line_of(mine[-1])}" if mine else ""
    first = failure.message.strip().split("\n")[0]
    return None if failure.echo else f"{failure.kind}: {first}{where}"
