"""What did this rank communicate? As the book's `allranks.trace`, from the calls that ranks note."""

import torch.distributed as dist

from allranks import collectives

SENT = {
    "all_reduce": collectives.ring_all_reduce_bytes,
    "reduce_scatter": collectives.ring_reduce_scatter_bytes,
    "all_gather": collectives.ring_all_gather_bytes,
    "all_to_all": collectives.all_to_all_bytes,
    "send": lambda nbytes, world_size: nbytes,
    "recv": lambda nbytes, world_size: 0,
    "barrier": lambda nbytes, world_size: 0,
}
for _kind in ("broadcast", "reduce", "gather", "scatter"):
    SENT[_kind] = collectives.rooted_bytes


class Count(dict):
    """A dict in which what was never counted is 0."""

    def __getitem__(self, key):
        return self.get(key, 0)

    def total(self):
        """All counts together."""
        return sum(self.values())


class trace:
    """Count what this rank communicates in a `with` block."""

    def __enter__(self):
        self.log = []
        self._first = len(dist.calls)
        return self

    def __exit__(self, *error):
        self.log = dist.calls[self._first :]

    def _by_kind(self, amount):
        total = Count()
        for call in self.log:
            total[call[0]] = total[call[0]] + amount(*call)
        return total

    calls = property(lambda self: self._by_kind(lambda kind, nbytes, size: 1))
    bytes = property(lambda self: self._by_kind(lambda kind, nbytes, size: nbytes))
    sent_by_kind = property(lambda self: self._by_kind(lambda kind, nbytes, size: SENT[kind](nbytes, size)))
    sent = property(lambda self: sum([SENT[kind](nbytes, size) for kind, nbytes, size in self.log]))
