"""Why can a world not go on? Two sentences: what `launch` says, and what the page adds, with lines."""

DEADLOCK, FAILED = "RanksTimedOut", "RankFailed"


class Failure(Exception):
    """A world that ended badly.

    kind: the name of the exception that `launch` raises. args[0]: what that says, as on real ranks.
    ranks: the cause. told: one sentence for the page, with the line of each rank. places: where ranks
    stood, a line each. place: the stack of the program where it went wrong, if there is one.
    """

    def __init__(self, kind, words, ranks, told=None, places=(), place=()):
        super().__init__(words)
        self.kind, self.words, self.ranks, self.told = kind, words, ranks, told or words
        self.places, self.place = places, place


def name(ranks):
    """`rank 1`, `ranks 0, 2`."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join([str(rank) for rank in ranks])}"


def were(ranks):
    """The verb that follows `name`."""
    return "was" if len(ranks) == 1 else "were"


def at(place):
    """` (line 4, in swap)` for the innermost of a stack of (line, function); nothing for no stack."""
    if not place:
        return ""
    line, function = place[-1]
    return f" (line {line})" if function in ("", "<module>") else f" (line {line}, in {function})"


def stood(place, waiting=None):
    """`line 4, in swap, waiting in recv`, as `launch` says where a rank stands."""
    if not place:
        return f"waiting in {waiting}" if waiting else ""
    line, function = place[-1]
    return f"line {line}, in {function}" + (f", waiting in {waiting}" if waiting else "")


def alike(phrases):
    """[(ranks, phrase)] with the ranks that share a phrase together, in the order of the first of them."""
    order, found = [], {}
    for rank, phrase in phrases:
        if phrase not in found:
            found[phrase] = []
            order.append(phrase)
        found[phrase].append(rank)
    return [(found[phrase], phrase) for phrase in order]


def listed(phrases, joint=" · "):
    """`rank 0 returned · ranks 1, 2 wait`; each phrase is given as of one rank, and as of several."""
    return joint.join(
        [f"{name(ranks)} {one if len(ranks) == 1 else many}" for ranks, (one, many) in alike(phrases)]
    )


def places(world):
    """A line for each place where ranks stood, as in the note of `launch`'s exception."""
    said = []
    for rank in range(world.size):
        if world.state[rank] == "waits":
            said.append((rank, stood(world.waits[rank].place, world.waits[rank].call)))
        elif world.state[rank] == "raised" and world.results[rank].place:
            said.append((rank, stood(world.results[rank].place)))
    return [f"{name(ranks)}: {phrase}" for ranks, phrase in alike(said)]


def raised(world):
    """The failure of a world in which ranks raised: each has a `Raised` as its result."""
    ranks = [rank for rank in range(world.size) if world.state[rank] == "raised"]
    said = [(rank, f"raised {world.results[rank].words}") for rank in ranks]
    here = [(rank, phrase + at(world.results[rank].place)) for rank, phrase in said]
    words, told = [" · ".join([f"{name(who)} {what}" for who, what in alike(each)]) for each in (said, here)]
    return Failure(FAILED, words, ranks, told, places(world))


def disagreed(meeting, timeout):
    """The failure of a collective that ranks have entered differently.

    With different shapes gloo fails; with different collectives it waits, and `launch` ends the wait.
    """
    parties = alike([(rank, meeting.calls[rank].words) for rank in sorted(meeting.calls)])
    by_size = sorted([ranks for ranks, _ in parties], key=len)
    odd = by_size if len(by_size[-1]) == len(by_size[-2]) else by_size[:-1]
    told = " · ".join([f"{name(ranks)} entered {what}" for ranks, what in parties])
    if len({entry.what["name"] for entry in meeting.calls.values()}) == 1:
        return Failure(FAILED, told, sorted([rank for ranks in odd for rank in ranks]))
    ranks = sorted(meeting.calls)
    return Failure(DEADLOCK, f"{name(ranks)} were still running after {timeout:g} s · {told}", ranks, told)


def unequal(sent, taken):
    """The failure of a message that does not fit where it is received."""
    words = f"rank {sent.rank} sends {said(sent)} to rank {taken.rank}, which receives {said(taken)}"
    return Failure(FAILED, words, [sent.rank, taken.rank])


def said(half):
    """`3 float32`."""
    n = 1
    for each in half.shape:
        n *= each
    return f"{n} {half.dtype}"


def too_long(rank, calls, place):
    """The failure of a program that waits too often for a page."""
    words = f"rank {rank} has waited {calls} times, too often for the page; the notebook has no limit"
    return Failure(FAILED, words, [rank], words + at(place), place=place)


def stuck(world, timeout):
    """The failure of a world in which every rank that is left waits for something that cannot come."""
    waiting = [rank for rank in range(world.size) if world.state[rank] == "waits"]
    differ = [meeting for meeting in world.meetings.values() if meeting.end is None and meeting.differs()]
    if differ:
        failure = disagreed(differ[0], timeout)
        failure.places = places(world)
        return failure
    waits = [world.waits[rank] for rank in waiting]
    here = [(rank, (f"waits in {wait.words}{at(wait.place)}", f"wait in {wait.words}{at(wait.place)}"))
            for rank, wait in zip(waiting, waits)]  # fmt: skip
    told = listed(here, "; ")
    done = [rank for rank in range(world.size) if world.state[rank] == "returned"]
    if done:
        calls = " and ".join(sorted({wait.call for wait in waits}))
        words = f"{name(done)} returned while {name(waiting)} {were(waiting)} still waiting in {calls}"
        return Failure(FAILED, words, done, f"{name(done)} returned while {told}", places(world))
    words = f"{name(waiting)} {were(waiting)} still running after {timeout:g} s"
    return Failure(DEADLOCK, words, waiting, f"deadlock: {told}", places(world))
