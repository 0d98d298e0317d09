"""What do one message and a sequence of rounds cost? The α–β model, and the words all algorithms share.

A message of n bytes takes α + βn seconds. A rank sends at most one message and receives at most one at a
time, and any pair of ranks can talk at once (Thakur et al. 2005, section 3). The arithmetic of a sum is left
out.
"""

from collections import namedtuple

from ..inputs import quantity, whole


class Cost(namedtuple("Cost", "rounds nbytes")):
    """What lies on the longest path through a collective: `rounds` latencies and `nbytes` bytes."""

    __slots__ = ()

    def seconds(self, α, β):
        """Seconds under the model, rounds·α + nbytes·β: α in seconds, β in seconds per byte."""
        quantity("α", α), quantity("β", β)
        return self.rounds * α + self.nbytes * β

    def then(self, other):
        """The cost of this and, after it, another."""
        return Cost(self.rounds + other.rounds, self.nbytes + other.nbytes)


def checked(nbytes, world_size, pieces=1):
    """Raise ValueError unless all are numbers a collective can have."""
    quantity("nbytes", nbytes), whole("world_size", world_size), whole("pieces", pieces)


def message_seconds(nbytes, α, β):
    """Seconds that one message of `nbytes` takes: α + βn (Hockney's model; Thakur et al. 2005, section 3).

    α is the latency in seconds, β the seconds for each byte, the inverse of the bandwidth.
    """
    quantity("nbytes", nbytes), quantity("α", α), quantity("β", β)
    return α + β * nbytes


def send(nbytes, world_size=2):
    """`Cost` of one message: 1 round, n bytes. A rank that is alone sends none."""
    checked(nbytes, world_size)
    return Cost(1, nbytes) if world_size > 1 else Cost(0, 0)


def send_sent(nbytes, world_size=2):
    """Bytes each rank sends when rank 0 sends one message: n, and the others none."""
    checked(nbytes, world_size)
    return [nbytes if world_size > 1 else 0] + [0] * (world_size - 1)


def log2_down(number):
    """The largest k with 2^k ≤ number."""
    k = 0
    while number >= 2 << k:
        k += 1
    return k


def log2_up(number):
    """The smallest k with 2^k ≥ number: ⌈log2 p⌉, the rounds in which what one rank knows reaches p ranks."""
    k = 0
    while (1 << k) < number:
        k += 1
    return k


def power_of_two(world_size):
    """Raise ValueError unless `world_size` is a power of two."""
    if world_size & (world_size - 1):
        raise ValueError(f"world_size must be a power of two here, not {world_size}")
    return log2_down(world_size)


def split(nbytes, parts, element_size=1):
    """Bytes of each of `parts` chunks of a message: whole elements, the first chunks one element larger.

    `nbytes` is a whole number of elements of `element_size` bytes; the list sums to `nbytes`.
    """
    whole("nbytes", nbytes, 0), whole("parts", parts), whole("element_size", element_size)
    if nbytes % element_size:
        raise ValueError(f"nbytes must be a multiple of element_size = {element_size}, not {nbytes}")
    each, more = divmod(nbytes // element_size, parts)
    return [(each + (part < more)) * element_size for part in range(parts)]
