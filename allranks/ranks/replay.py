"""Run the blocking code of several ranks in one interpreter without threads: by replay, with a log.

A rank runs the whole program, in fresh names, until it asks the world for something that has no answer yet;
then an exception stops it. Once the answer is there, the program runs again and is told all answers so far.
Nothing is rewritten for that and nothing is shared between ranks; each stop has its true stack. What can be
answered at once is, without a stop. After a stop, everything that is asked stops again and prints are
dropped, so that a `finally` or a bare `except` of the program does no harm.

The same holds for the program around: it is stopped where it calls `launch`, which then runs a world.
"""

import io
import random
import sys

from .faults import FAILED, Failure, at
from .source import bits, changed, prepared
from .world import SECONDS, Raised, World

LABEL = "cell"
MOST_RANKS = 16
TEXT = 100_000  # characters that a program may print


class Stop(BaseException):
    """Ends a run that has to wait. No `except Exception` of the program catches it."""


class Result(BaseException):
    """Ends a run of a rank whose function has returned `value`."""

    def __init__(self, value):
        self.value = value


class Script:
    """What one rank, or the program around, has been told so far; `tape` is for the library."""

    def __init__(self, tape):
        self.log, self.told, self.tape = [], 0, tape


class Replay:
    """Runs a program and its launches.

    library: the torch of the ranks. `names()` gives a program's names, `begin(rank, world_size, script)` is
    called before each run, `tape()` makes what it keeps between runs, `errors` are what `launch` raises.
    Afterwards `worlds` are the launches in order, `printed` is the text, and `failure` why it ended, or None.
    """

    def __init__(self, source, library, α, β):
        self.source, self.library, self.α, self.β = source, library, α, β
        self.worlds, self.scripts, self.printed, self.failure = [], [], [], None
        self.room = TEXT  # characters that may still be printed

    def run(self):
        """Run the program to its end."""
        try:
            self.code = compile(prepared(self.source), LABEL, "exec")
        except SyntaxError as error:
            place = ((line_of(error), ""),)
            told = f"this is not Python{at(place)}"
            self.failure = Failure("SyntaxError", str(error.args[0]), [], told, place=place)
            return
        kernel = Script(self.library.tape())
        while True:
            what, value = self.go(kernel, None, None)
            if what == "launch":
                self.world(*value)
            else:
                self.failure = value
                return

    def world(self, size, timeout):
        """Run the ranks of the next launch."""
        scripts = [Script(self.library.tape()) for _ in range(size)]
        self.worlds.append(World(size, self.α, self.β, self, timeout))
        self.scripts.append(scripts)
        lines = [[] for _ in range(size)]
        self.lines = lines
        self.worlds[-1].run_to_end()
        for rank, each in enumerate(lines):
            self.write([f"[rank {rank}] {line}\n" for text in each for line in text.rstrip("\n").split("\n")])

    # ---- what a world asks of its runner ----
    def step(self, rank):
        """Run a rank until it waits or ends: ("returned" or "raised" or "failed" or "blocked", value)."""
        return self.go(self.scripts[-1][rank], rank, len(self.worlds) - 1)

    def answer(self, rank, value):
        """Tell a rank what it has asked for."""
        self.scripts[-1][rank].log.append(value)

    # ---- one run ----
    def go(self, script, rank, launch, until=None):
        """Run the program once: as `rank` of launch number `launch`, or as the program around."""
        self.script, self.rank, self.target, self.until = script, rank, launch, until
        self.at, self.said, self.launched, self.stopped = 0, 0, 0, None
        self.begun = rank is None  # what a rank does before its function begins, the program around has done
        self.library.begin(rank, None if rank is None else self.worlds[launch].size, script)
        random.seed(rank or 0)
        names = self.library.names()
        names.update({"__name__": "__main__", "print": self.print, "_inplace": self.inplace, "_bits": bits})
        names["_show"] = self.show
        try:
            exec(self.code, names)
            return "returned", None
        except Result as result:
            return "returned", result.value
        except BaseException as error:
            place = frames(error)
            if self.stopped:  # by us, or what a `finally` or a bare `except` made of that
                what, value = self.stopped
                if what == "refused":
                    what, value.told, value.place = "failed", value.told + at(place), place
                return what, place if what == "blocked" else value
            return self.ended(error, place)

    def ended(self, error, place):
        """How a run ended that raised `error`."""
        who = "the program" if self.rank is None else f"rank {self.rank}"
        if isinstance(error, KeyboardInterrupt):
            words = f"{who} was stopped: it runs on and on"
        elif isinstance(error, MemoryError):
            words = f"{who} was stopped: it needs more memory than the page gives a program"
        elif "recursion depth" in str(error):
            words = f"{who} was stopped: it calls itself too deeply"
        elif self.rank is not None:
            return "raised", Raised(f"{type(error).__name__}: {error}".rstrip(": "), place)
        else:
            kind, launched = type(error).__name__, getattr(error, "failure", None)
            told = launched.told if launched else f"{kind}: {error}".rstrip(": ") + at(place)
            return "failed", Failure(kind, str(error), [], told, place=place)
        ranks = [] if self.rank is None else [self.rank]
        return "failed", Failure(FAILED, words, ranks, words + at(place), place=place)

    def stop(self, what, value=None):
        """End this run."""
        self.stopped = what, value
        raise Stop()

    def ask(self, kind, what):
        """Ask the world for something; `what()` describes it. Returns its answer, or stops the run."""
        if self.stopped:
            raise Stop()
        if self.rank is None:
            raise RuntimeError("there is no process group here: only a rank, in launch, can communicate")
        number = self.at
        self.at += 1
        if number == self.until:
            self.stop("blocked")
        log = self.script.log
        if number < len(log):
            return log[number]
        try:
            goes_on = self.worlds[-1].serve(self.rank, kind, what(), number)
        except Failure as failure:
            self.stop("refused", failure)
        if goes_on and number < len(log):
            return log[number]
        self.stop("blocked")

    def launch(self, fn, args, kwargs, world_size, timeout):
        """What `launch` does: the result of a world that has run, or the function itself, on a rank."""
        if self.stopped:
            raise Stop()
        if not callable(fn):
            raise TypeError(f"launch needs a function, not {type(fn).__name__}")
        world_size = 4 if world_size is None else world_size
        if not isinstance(world_size, int) or not 1 <= world_size <= MOST_RANKS:
            raise ValueError(f"world_size must be from 1 to {MOST_RANKS} in the page, not {world_size!r}")
        number = self.launched
        self.launched += 1
        if number == self.target:
            self.begun = True
            try:
                value = fn(*args, **kwargs)
            except Exception as error:  # which the program around would catch on this rank
                if not self.stopped:
                    self.stopped = self.ended(error, frames(error))
            if self.stopped:
                raise Stop()
            raise Result(value)
        if number == len(self.worlds):
            self.stop("launch", (world_size, SECONDS if timeout is None else timeout))
        world = self.worlds[number]
        if world.failure:
            raise self.library.errors[world.failure.kind](world.failure)
        return [copied(value) for value in world.results]

    def place(self, world, rank, call):
        """The stack, as ((line, function), ...), in which a rank of launch number `world` made a call."""
        what, place = self.go(self.scripts[world][rank], rank, world, until=call)
        return place if what == "blocked" else ()

    # ---- what a program prints ----
    def print(self, *words, sep=" ", end="\n", **_):
        """Print once, however often the program runs."""
        if self.stopped or not self.begun:
            return
        self.said += 1
        if self.said > self.script.told:
            self.script.told = self.said
            text = sep.join([str(word) for word in words]) + end
            if self.rank is None:
                self.write([text])
            else:
                self.lines[self.rank].append(text)

    def write(self, texts):
        """Add to what was printed, up to a length."""
        for text in texts:
            if len(text) > self.room >= 0:
                self.printed.append(text[: self.room] + "\n… the rest is not shown\n")
            elif self.room >= 0:
                self.printed.append(text)
            self.room -= len(text)

    def show(self, value):
        """Show the value of a last line, as a notebook does."""
        if value is not None:
            self.print(repr(value))

    def inplace(self, name, target, value):
        """What `target op= value` leaves in `target`."""
        own = getattr(target, "changed", None)
        return own(value, name) if own else changed(name, target, value)


def copied(value):
    """A result, as a process gets it from another: nothing of it is shared."""
    if hasattr(value, "clone"):
        return value.clone()
    if type(value) is list:
        return [copied(each) for each in value]
    if type(value) is tuple:
        return tuple([copied(each) for each in value])
    if type(value) is dict:
        return {key: copied(each) for key, each in value.items()}
    return value


def frames(error):
    """((line, function), ...) of the program's frames in the stack of an exception, the innermost last."""
    if not hasattr(sys, "print_exception"):  # not MicroPython
        found, trace = [], error.__traceback__
        while trace:
            code = trace.tb_frame.f_code
            if code.co_filename == LABEL:
                found.append((trace.tb_lineno, code.co_name))
            trace = trace.tb_next
        return tuple(found)
    return tuple(written(error))


def written(error):
    """The frames of the program in what MicroPython writes about an exception."""
    text = io.StringIO()
    sys.print_exception(error, text)
    mark = f'File "{LABEL}", line '
    for line in text.getvalue().split("\n"):
        if mark in line:
            number, _, function = line[line.find(mark) + len(mark) :].partition(", in ")
            yield int(number), function


def line_of(error):
    """The line of a SyntaxError."""
    if hasattr(error, "lineno"):
        return error.lineno
    found = frames(error)
    return found[-1][0] if found else 1
