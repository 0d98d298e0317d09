"""Which message meets which, when does it arrive, and who is stuck?

A message of n bytes takes α + βn seconds from the moment when both sides are there; a rank sends at most one
message and receives at most one at a time, in the order in which they were matched. A send waits for its
receiver, as gloo's may. Computing takes no time. The world knows nothing of how programs are run: its runner
has `step(rank)`, which runs a rank until it waits or ends, and `answer(rank, value)`.
"""

from collections import namedtuple

from . import faults
from .meetings import SIZES, Meeting

MOST_WAITS = 150  # of one rank: a program is run again after each
SECONDS = 60.0


class Event(namedtuple("Event", "kind ranks start end nbytes calls words")):
    """A message (`kind` is "message"; ranks: source, target) or a collective (`kind` is its name).

    start: when it begins; for a collective, when each rank came. calls: the number of the call of each rank.
    """


class Wait(namedtuple("Wait", "words call place thing answer")):
    """What a waiting rank waits in: "recv from rank 1", "recv", its stack, for what, and its answer."""


class Raised(namedtuple("Raised", "words place")):
    """The result of a rank that raised: the exception in words, and its stack."""


class Half:
    """One side of a message: what a rank offers to send, or is ready to receive (`elements` is None)."""

    def __init__(self, rank, peer, data, now, call):
        self.dtype, self.shape, self.elements = data
        self.rank, self.peer, self.at, self.call = rank, peer, now, call
        self.sends, self.end, self.other = self.elements is not None, None, None

    def words(self):
        """`send to rank 1`."""
        if self.sends:
            return f"send to rank {self.peer}"
        return "recv" if self.peer is None else f"recv from rank {self.peer}"


class World:
    """The ranks of one launch. After `run`, `events` is what they did and `clock` when each had ended."""

    def __init__(self, size, α, β, runner, timeout=SECONDS):
        self.size, self.α, self.β, self.runner, self.timeout = size, α, β, runner, timeout
        self.clock, self.out, self.into = [0.0] * size, [0.0] * size, [0.0] * size
        self.sends, self.recvs = {}, {}  # (source, target, tag): halves that wait for the other
        self.works = [[] for _ in range(size)]
        self.entered, self.meetings, self.groups = {}, {}, [0] * size
        self.state, self.waits, self.results = ["ready"] * size, [None] * size, [None] * size
        self.events, self.waited, self.stops = [], [], [0] * size  # waited: (rank, from, to, in what)
        self.failure = None

    def run(self):
        """Run all ranks to their end; return their results, or raise `faults.Failure`."""
        self.run_to_end()
        if self.failure:
            raise self.failure
        return self.results

    def run_to_end(self):
        """Run all ranks to their end; why they could not go on is then in `failure`."""
        try:
            while "ready" in self.state:
                ready = [rank for rank in range(self.size) if self.state[rank] == "ready"]
                self.step(min(ready, key=lambda rank: self.clock[rank]))
            if "raised" in self.state:
                raise faults.raised(self)
            if "waits" in self.state:
                raise faults.stuck(self, self.timeout)
        except faults.Failure as failure:
            failure.places = failure.places or faults.places(self)
            self.failure = failure

    def step(self, rank):
        """Let a rank run until it waits or ends."""
        what, value = self.runner.step(rank)
        if what in ("returned", "raised"):
            self.state[rank], self.results[rank] = what, value
        elif what == "failed":
            raise value
        else:
            self.stops[rank] += 1
            if self.stops[rank] > MOST_WAITS:
                raise faults.too_long(rank, MOST_WAITS, value)
            if self.state[rank] == "waits":
                wait = self.waits[rank]
                self.waits[rank] = Wait(wait.words, wait.call, value, wait.thing, wait.answer)

    def serve(self, rank, kind, what, call):
        """Do what a rank asks in its call number `call`. It is answered through the runner, now or later.

        Returns False if the rank should be stopped although it has its answer: it only asked whether
        something is done, and others have to run before that can change.
        """
        now = self.clock[rank]
        if kind in ("send", "recv"):
            half = Half(rank, what["peer"], what["data"], now, call)
            self.post(half, what["tag"])
            self.wait(rank, half.words(), kind, half, self.of_message(half))
        elif kind == "batch":
            numbers = []
            for peer, tag, data in what["ops"]:
                self.works[rank].append(Half(rank, peer, data, now, call))
                self.post(self.works[rank][-1], tag)
                numbers.append(len(self.works[rank]) - 1)
            self.answer(rank, numbers)
        elif kind == "collective":
            meeting = self.enter(rank, what, call)
            if what["later"]:
                self.works[rank].append(meeting)
                self.answer(rank, len(self.works[rank]) - 1)
            else:
                self.wait_meeting(rank, meeting)
        elif kind == "wait":
            thing = self.works[rank][what["number"]]
            if isinstance(thing, Meeting):
                self.wait_meeting(rank, thing)
            else:
                self.wait(rank, f"wait, for its {thing.words()}", "wait", thing, self.of_message(thing))
        elif kind == "is_completed":
            end = self.works[rank][what["number"]].end
            self.answer(rank, end is not None and end <= now)
            if end is None or end > now:
                self.clock[rank] += self.α
                return False
        elif kind == "new_group":
            self.groups[rank] += 1
            self.answer(rank, self.groups[rank])
        return True

    def answer(self, rank, value):
        """Give a rank what it asked for."""
        self.state[rank] = "ready"
        self.runner.answer(rank, value)

    # ---- messages ----
    def post(self, half, tag):
        """Put down one half; if the other one lies there, the message travels."""
        if half.sends:
            mine, theirs, way = self.sends, self.recvs, (half.rank, half.peer, tag)
            found = way if theirs.get(way) else (None, half.peer, tag)
        else:
            mine, theirs, way = self.recvs, self.sends, (half.peer, half.rank, tag)
            found = way
            if half.peer is None:  # from anyone: what was offered first
                ways = [each for each in theirs if each[1:] == way[1:] and theirs[each]]
                found = min(ways, key=lambda each: (theirs[each][0].at, each[0])) if ways else way
        if theirs.get(found):
            other = theirs[found].pop(0)
            self.travel(*((half, other) if half.sends else (other, half)))
        else:
            mine.setdefault(way, []).append(half)

    def travel(self, sent, taken):
        """Carry a message from one half to the other."""
        n, m = count(sent.shape), count(taken.shape)
        nbytes = n * SIZES[sent.dtype]
        if nbytes != m * SIZES[taken.dtype]:
            raise faults.unequal(sent, taken)
        start = max(sent.at, taken.at, self.out[sent.rank], self.into[taken.rank])
        end = start + self.α + self.β * nbytes
        self.out[sent.rank] = self.into[taken.rank] = sent.end = taken.end = end
        taken.elements, taken.other, sent.other = sent.elements, sent, taken
        words = f"{n} {sent.dtype}: {few(sent.elements)}" if n else f"0 {sent.dtype}"
        calls = sent.call, taken.call
        self.events.append(Event("message", (sent.rank, taken.rank), start, end, nbytes, calls, words))
        for half in (sent, taken):
            self.resume_if(half.rank, half)

    def of_message(self, half):
        """What a rank is told when its half has travelled."""
        return (lambda: None) if half.sends else (lambda: (half.other.rank, half.elements))

    # ---- waiting ----
    def wait(self, rank, words, call, thing, answer):
        """Let a rank wait until `thing` has its end, which may be at once."""
        self.state[rank], self.waits[rank] = "waits", Wait(words, call, (), thing, answer)
        if thing.end is not None:
            self.resume_if(rank, thing)

    def resume_if(self, rank, thing):
        """Let a rank go on if it waits for `thing`."""
        wait = self.waits[rank]
        if self.state[rank] != "waits" or wait.thing is not thing:
            return
        if thing.end > self.clock[rank]:
            self.waited.append((rank, self.clock[rank], thing.end, wait.words))
            self.clock[rank] = thing.end
        self.answer(rank, wait.answer())

    # ---- collectives ----
    def enter(self, rank, what, call):
        """Let a rank enter its next collective among `what["ranks"]`; the last to come completes it."""
        ranks = what["ranks"]
        number = self.entered.get((rank, ranks), 0)
        self.entered[rank, ranks] = number + 1
        if (ranks, number) not in self.meetings:
            self.meetings[ranks, number] = Meeting(ranks)
        meeting = self.meetings[ranks, number]
        meeting.enter(rank, what, call, self.clock[rank])
        if meeting.is_complete():
            if meeting.differs():
                raise faults.disagreed(meeting, self.timeout)
            meeting.hold(self.α, self.β)
            entries = [meeting.calls[each] for each in ranks]
            start, calls = [entry.at for entry in entries], [entry.call for entry in entries]
            about = f"{what['name']} of {'no' if not meeting.nbytes else meeting.nbytes} bytes"
            self.events.append(Event(what["name"], ranks, start, meeting.end, meeting.nbytes, calls, about))
            for each in ranks:
                self.resume_if(each, meeting)
        return meeting

    def wait_meeting(self, rank, meeting):
        """Let a rank wait for a collective that it has entered."""
        name = meeting.calls[rank].what["name"]
        self.wait(rank, name, name, meeting, lambda: meeting.answers[rank])


def count(shape):
    """Elements of a tensor of this shape."""
    n = 1
    for each in shape:
        n *= each
    return n


def few(elements, most=4):
    """The first elements, in words."""
    shown = [f"{x:.4g}" if isinstance(x, float) else str(x) for x in elements[:most]]
    return ", ".join(shown) + (" …" if len(elements) > most else "")
