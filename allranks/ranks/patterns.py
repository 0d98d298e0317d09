"""Which small programs of sends and receives show who waits for whom? A program a rank, played in a `World`.

A call is (kind, peer): "send" and "recv" block, "isend" and "irecv" only begin, "wait" waits for what they
began. Every message takes 1, a round of the α–β model with no bytes; a rank may begin late.
"""

from collections import namedtuple

from .world import World

Played = namedtuple("Played", "programs world began")
"""The program of each rank, the `World` after its run, and when each call of each rank began."""

Gap = namedtuple("Gap", "rank start stop peer")
"""A time in which `rank` has to wait for `peer`; `stop` is None if that never ends."""


def in_turn(p):
    """Rank 0 sends to one rank after another."""
    return [[("send", peer) for peer in range(1, p)]] + [[("recv", 0)] for _ in range(1, p)]


def tree(p):
    """Every rank that has the tensor sends it on: the tree of the chapter *Ranks*."""
    programs, know = [[] for _ in range(p)], 1
    while know < p:
        for rank in range(min(know, p - know)):
            programs[rank].append(("send", rank + know))
            programs[rank + know].append(("recv", rank))
        know *= 2
    return programs


def forgetful_tree(p):
    """The same tree, but rank 0 forgets to send to rank 1."""
    programs = tree(p)
    return [programs[0][1:]] + programs[1:]


def token(p):
    """A token goes once around a ring, from rank 0 to rank 0."""
    return ring(p, lambda rank: rank == 0)


def ring(p, sends_first):
    """Each rank sends to the next and receives from the one before; `sends_first(rank)`: in this order."""
    programs = []
    for rank in range(p):
        calls = [("send", (rank + 1) % p), ("recv", (rank - 1) % p)]
        programs.append(calls if sends_first(rank) else calls[::-1])
    return programs


def begun_ring(p):
    """The same ring, with calls that only begin, and one that waits for both."""
    return [[("isend", (rank + 1) % p), ("irecv", (rank - 1) % p), ("wait", None)] for rank in range(p)]


def pairs(p, sends_first):
    """Ranks 0 and 1, 2 and 3, … exchange a message; without a partner, a rank has nothing to do."""
    programs = []
    for rank in range(p):
        calls = [("send", rank ^ 1), ("recv", rank ^ 1)] if rank ^ 1 < p else []
        programs.append(calls if sends_first(rank) else calls[::-1])
    return programs


PATTERNS = {
    "in_turn": in_turn,
    "tree": tree,
    "forgets": forgetful_tree,
    "token": token,
    "all_send": lambda p: ring(p, lambda rank: True),
    "all_receive": lambda p: ring(p, lambda rank: False),
    "even_send": lambda p: ring(p, lambda rank: rank % 2 == 0),
    "begin": begun_ring,
    "pairs_send": lambda p: pairs(p, lambda rank: True),
    "pairs": lambda p: pairs(p, lambda rank: rank % 2 == 0),
}


class Runner:
    """Runs the programs for a world; `began[rank]` is when each call of a rank began."""

    def __init__(self, programs):
        self.programs, self.world = programs, None
        self.began = [[] for _ in programs]
        self.told = [True] * len(programs)  # whether a rank has been answered
        self.asking = [self.asked(rank) for rank in range(len(programs))]

    def asked(self, rank):
        """What the program of a rank asks the world for, in order."""
        begun = 0
        for kind, peer in self.programs[rank]:
            self.began[rank].append(self.world.clock[rank])
            data = ("uint8", (0,), [] if kind in ("send", "isend") else None)
            if kind == "wait":
                for number in range(begun):
                    yield "wait", {"number": number}
            elif kind in ("isend", "irecv"):
                begun += 1
                yield "batch", {"ops": [(peer, 0, data)]}
            else:
                yield kind, {"peer": peer, "tag": 0, "data": data}

    def step(self, rank):
        """Run a rank until it waits or ends."""
        while self.told[rank]:
            self.told[rank] = False
            asked = next(self.asking[rank], None)
            if asked is None:
                return "returned", None
            self.world.serve(rank, asked[0], asked[1], len(self.began[rank]) - 1)
        return "blocked", ((len(self.began[rank]), ""),)

    def answer(self, rank, value):
        """Note that a rank has what it asked for."""
        self.told[rank] = True


def play(pattern, p, late_rank=0, late=0):
    """Run a pattern on p ranks, of which one begins `late` rounds after the others; return it `Played`."""
    runner = Runner(PATTERNS[pattern](p))
    runner.world = World(p, 1.0, 0.0, runner)
    runner.world.clock[late_rank] = float(late)
    runner.world.run_to_end()
    return Played(runner.programs, runner.world, runner.began)


def rounds(played):
    """When the last rank returned, or came to wait for ever."""
    return max(played.world.clock)


def gaps(played):
    """Every `Gap` of a run: a rank has begun a call, and no message of its own is on the way."""
    world, found = played.world, []
    for rank in range(world.size):
        own = [event for event in world.events if rank in event.ranks]
        at = played.began[rank][0] if played.began[rank] else world.clock[rank]
        for start, end, peer in sorted([(e.start, e.end, other(e, rank)) for e in own]):
            if start > at:
                found.append(Gap(rank, at, start, peer))
            at = max(at, end)
        if world.state[rank] == "waits":
            found.append(Gap(rank, at, None, world.waits[rank].thing.peer))
    return found


def other(event, rank):
    """The other rank of a message."""
    source, target = event.ranks
    return target if rank == source else source


def chain(played, rank):
    """`rank`, whom it waits for when nothing moves any more, whom that one waits for, and so on.

    Ends with a rank that has returned, or with one that was named before.
    """
    world, found = played.world, [rank]
    while world.state[found[-1]] == "waits" and found[-1] not in found[:-1]:
        found.append(world.waits[found[-1]].thing.peer)
    return found


def circle(played):
    """The first ranks that wait for one another in a circle, the first again at the end; [] if none do."""
    for rank in range(played.world.size):
        found = chain(played, rank)
        if len(found) > 1 and found[-1] == rank:
            return found
    return []


def stuck(played):
    """The ranks that wait for ever."""
    return [rank for rank in range(played.world.size) if played.world.state[rank] == "waits"]
