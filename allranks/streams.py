"""Which operation may run, and which never will? NCCL's streams as queues, in one place that sees them all.

The model: each rank has one queue for each communicator, as NCCL has one stream. Only the operation at the
head of a queue can run: a collective once it is at the head on all ranks of its communicator, a send once the
receive of its peer is at the head too. Sends are not buffered, unless they have at most `buffered` bytes. The
sends and receives of one batch are at the head together. A rank that waits for an operation issues nothing.

A deadlock is then a fact, not a matter of patience: it is there as soon as no rank that still moves can
free those that wait. The judge knows no processes: events go in, and verdicts come out. `allranks.nccl`
asks it for real ranks, `allranks.lowering` for a pipeline on paper.
"""

from collections import namedtuple

Part = namedtuple("Part", "kind peer what nbytes sizes")
"""What one call asks for: 'send' or 'recv' and the peer's rank, or a collective's name and None.

`what` has to be the same at its other ends, in words: "3 × float32", "4 × int64, root 0". `sizes`, of an
all-to-all: how many elements go to each rank of the group, and how many are expected from each; else None."""


class Broken(Exception):
    """A rule that the `ranks` have broken together, in one sentence."""

    def __init__(self, sentence, ranks):
        super().__init__(sentence)
        self.ranks = sorted(set(ranks))


class _Issued:
    """What `rank` has issued on `group`: one collective, one send or receive, or a batch of these."""

    def __init__(self, rank, number, group, parts, before):
        self.rank, self.number, self.group, self.parts = rank, number, group, parts
        self.before = before  # {group: collectives that the rank had issued there}
        self.missing = list(range(len(parts)))  # the parts whose other ends have not come yet
        self.collective = parts[0].kind not in ("send", "recv")

    def words(self):
        return " and ".join([_described(part) for part in self.parts])


class Judge:
    """Matches what ranks issue. `verdicts` collects what may run, in an order in which all of it can:
    (rank, number, part, buffered)."""

    def __init__(self, world_size, buffered=0):
        self.ranks, self.buffered = range(world_size), buffered
        self.members = {}  # group: its ranks
        self.queues = {}  # (group, rank): what is not done
        self.buffers = {}  # (group, sender, receiver): what was sent and not yet received
        self.issued = {rank: {} for rank in self.ranks}  # rank: {group: collectives}
        self.waits, self.gone = {}, set()  # rank: what it waits for; ranks whose program has ended
        self.verdicts = []

    def issue(self, rank, number, group, members, parts):
        """`rank` issues its operation `number`; raises `Broken` if it does not fit those of its peers."""
        self.members[group] = members
        issued = self.issued[rank]
        new = _Issued(rank, number, group, parts, dict(issued))
        if new.collective:
            issued[group] = issued.get(group, 0) + 1
        queue = self.queues.setdefault((group, rank), [])
        queue.append(new)
        if len(queue) == 1:
            self._match(new)

    def wait(self, rank, number):
        """`rank` does nothing until its operation `number` is done; raises `Broken` if that is never."""
        for (_, owner), queue in self.queues.items():
            for one in queue if owner == rank else ():
                if one.number == number:
                    self.waits[rank] = one
        if rank in self.waits:
            self._find_deadlock()

    def leave(self, rank):
        """The program of `rank` has ended; raises `Broken` if a rank waits for it."""
        self.gone.add(rank)
        self._find_deadlock()

    def _match(self, head):
        """Let run what can run, beginning with one that has just come to the head of its queue."""
        heads = [head]
        while heads:
            head = heads.pop(0)
            if not head.missing:  # another head has completed it
                continue
            for done in self._whole(head) if head.collective else self._both_ends(head):
                queue = self.queues[done.group, done.rank]
                queue.pop(0)
                if self.waits.get(done.rank) is done:
                    del self.waits[done.rank]
                heads += queue[:1]

    def _whole(self, head):
        """The operations that make one collective, if all are there."""
        heads = [self._head(head.group, rank) for rank in self.members[head.group]]
        if not all(one and one.collective for one in heads):
            return []
        _agree(heads)
        _in_one_order(heads, self.members)
        for one in heads:
            self._grant(one, 0)
        return heads

    def _both_ends(self, head):
        """Match the sends and receives of `head`; return what this completes."""
        touched = {head.rank: head}
        for place in list(head.missing):
            part = head.parts[place]
            sent = self.buffers.get((head.group, part.peer, head.rank), []) if part.kind == "recv" else []
            other = self._head(head.group, part.peer)
            end = self._other_end(part, head, other)
            if sent:
                _equal(sent.pop(0), part, part.peer, head.rank)
                self._grant(head, place)
            elif end is not None:
                pair = [(part, head.rank), (other.parts[end], other.rank)]
                (send, sender), (recv, receiver) = pair if part.kind == "send" else pair[::-1]
                _equal(send, recv, sender, receiver)
                self._grant(head, place), self._grant(other, end)
                touched[other.rank] = other
            elif part.kind == "send" and 0 < self.buffered >= part.nbytes:
                self.buffers.setdefault((head.group, head.rank, part.peer), []).append(part)
                self._grant(head, place, buffered=True)
        return [one for one in touched.values() if not one.missing]

    def _other_end(self, part, head, other):
        """The place of the part of `other`, the peer's head, that is the other end of `part`; or None."""
        for place in other.missing if other else ():
            end = other.parts[place]
            if {part.kind, end.kind} == {"send", "recv"} and end.peer == head.rank:
                return place
        return None

    def _grant(self, one, place, buffered=False):
        one.missing.remove(place)
        self.verdicts.append((one.rank, one.number, place, buffered))

    def _head(self, group, rank):
        queue = self.queues.get((group, rank))
        return queue[0] if queue else None

    def _needs(self, head):
        """The ranks that have yet to do something before `head` can run."""
        if not head.collective:
            return [head.parts[place].peer for place in head.missing]
        heads = [(rank, self._head(head.group, rank)) for rank in self.members[head.group]]
        return [rank for rank, one in heads if not (one and one.collective)]

    def _find_deadlock(self):
        """Raise `Broken` if ranks wait for what no rank that still moves can bring about."""
        moving = {rank for rank in self.ranks if rank not in self.waits and rank not in self.gone}
        heads = {place: queue[0] for place, queue in self.queues.items() if queue}
        live = set()

        def can_come(group, rank):
            return (group, rank) in live if (group, rank) in heads else rank in moving

        before = None
        while before != (len(live), len(moving)):
            before = len(live), len(moving)
            for (group, rank), head in heads.items():
                if all(can_come(group, needed) for needed in self._needs(head)):
                    live.add((group, rank))
            moving |= {rank for rank, one in self.waits.items() if (one.group, rank) in live}
        stuck = [rank for rank in sorted(self.waits) if rank not in moving]
        if stuck:
            raise self._deadlock(stuck[0], heads, can_come)

    def _deadlock(self, rank, heads, can_come):
        """The circle of ranks that wait for each other, or the way to one whose program has ended."""
        group, steps = self.waits[rank].group, []  # of (rank, what it does)
        while rank not in [one for one, _ in steps]:
            if (group, rank) not in heads:
                if rank in self.gone:
                    return _hang(steps + [(rank, "has returned")])
                group = self.waits[rank].group
            head = heads[group, rank]
            needed = next(one for one in self._needs(head) if not can_come(group, one))
            steps.append((rank, f"is in {head.words()} and waits for rank {needed}"))
            rank = needed
        circle = steps[[one for one, _ in steps].index(rank) :]
        first = circle.index(min(circle))
        return _hang(circle[first:] + circle[:first])


def _hang(steps):
    sentence = " · ".join([f"rank {rank} {does}" for rank, does in steps])
    return Broken("NCCL would hang: " + sentence, [rank for rank, does in steps if does != "has returned"])


def _described(part):
    """A part in words: "send to rank 1 of 3 × float32", "all_reduce of 4 × float32"."""
    way = {"send": f" to rank {part.peer}", "recv": f" from rank {part.peer}"}.get(part.kind, "")
    return part.kind + way + (f" of {part.what}" if part.what else "")


def _equal(sent, received, sender, receiver):
    """Raise `Broken` unless a message is received as what it was sent as."""
    if sent.what != received.what:
        raise Broken(
            f"NCCL does not check that both ends of a message match: rank {sender} sends {sent.what} · "
            f"rank {receiver} receives {received.what}",
            (sender, receiver),
        )


def _agree(heads):
    """Raise `Broken` unless all ranks of a communicator have issued the same collective."""
    entered = []  # of (what, ranks)
    for one in heads:
        party = [ranks for what, ranks in entered if what == one.words()]
        party[0].append(one.rank) if party else entered.append((one.words(), [one.rank]))
    if len(entered) > 1:
        parties = " · ".join([f"{_ranks_in_words(ranks)} entered {what}" for what, ranks in entered])
        raise Broken(f"NCCL needs the same collective on all ranks: {parties}", [one.rank for one in heads])
    for i, sender in enumerate(heads if heads[0].parts[0].sizes else ()):
        for j, receiver in enumerate(heads):
            sent, expected = sender.parts[0].sizes[0][j], receiver.parts[0].sizes[1][i]
            if sent != expected:
                raise Broken(
                    f"NCCL does not check the parts of an all_to_all: rank {sender.rank} sends {sent} "
                    f"elements to rank {receiver.rank}, which expects {expected}",
                    (sender.rank, receiver.rank),
                )


def _in_one_order(heads, members):
    """Raise `Broken` if ranks that share two communicators use them in different orders."""
    for group in sorted({other for one in heads for other in one.before if other != one.group}, key=str):
        both = [one for one in heads if one.rank in members[group]]
        counts = [one.before.get(group, 0) for one in both]
        if len(set(counts)) > 1:
            told = " · ".join([f"{count} from rank {one.rank}" for count, one in zip(counts, both)])
            ranks = [one.rank for one in both]
            raise Broken(
                f"NCCL needs communicators in the same order on all ranks: before {both[0].words()} on "
                f"{_ranks_in_words(ranks)}, the collectives on {_ranks_in_words(members[group])} were {told}",
                ranks,
            )


def _ranks_in_words(ranks):
    """`rank 1`, `ranks 0, 2`."""
    listed = ", ".join([str(rank) for rank in ranks])
    return f"ranks {listed}" if len(ranks) > 1 else f"rank {listed}"
