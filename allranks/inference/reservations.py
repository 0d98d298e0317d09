"""How much of the cache's memory holds tokens, and what is the rest waiting for?

The model: a server whose queue is never empty. Each running request has its prompt in the cache and writes a
token a step; the first in the queue enters as soon as there is memory for it. A policy says how much that is:
one contiguous chunk, placed by a buddy allocator, of the `longest` sequence ("max"), of the prompt and the
answer's length rounded up to a power of two ("pow2"), or of exactly what it will need ("oracle"); or pages on
demand ("paged"), the last request losing its own when there is none (Kwon et al. 2023, sections 4.5 and 6.1).
"""

import math
from collections import OrderedDict, namedtuple

from ..inputs import one_of, quantity, whole
from .arrivals import Request, uniforms

Shares = namedtuple("Shares", "tokens reserved internal external")
"""Parts of the memory, averaged over steps: tokens in the cache; places that their requests will fill later;
places that were asked for and stay empty; and what no request asked for. Their sum is 1."""


def exponential_lengths(prompt, output, longest, count, seed=1):
    """`count` requests, all at time 0, with exponential lengths of these means, together at most `longest`.

    Longer ones are drawn again.
    """
    quantity("prompt", prompt, positive=True), quantity("output", output, positive=True)
    drawn, found = uniforms(seed, 3), []
    while len(found) < whole("count", count):
        sizes = [1 + int(-math.log(next(drawn)) * mean) for mean in (prompt, output)]
        if sum(sizes) <= longest:
            found.append(Request(0.0, sizes[0], sizes[1]))
    return found


class Buddy:
    """Contiguous blocks of memory whose sizes are powers of two, each split from one twice as large."""

    def __init__(self, places):
        self.free, start, size = {}, 0, rounded(places + 1) // 2
        while size:
            self.free[size] = [start] if places & size else []
            start += places & size
            size //= 2

    def take(self, places):
        """The (start, size) of a block for `places` tokens, or None if no free block is large enough."""
        size = rounded(places)
        larger = [each for each in self.free if each >= size and self.free[each]]
        if not larger:
            return None
        found = min(larger)
        start = self.free[found].pop()
        while found > size:
            found //= 2
            self.free[found].append(start + found)
        return start, size

    def release(self, block):
        """Give a block back, and join it with its other half as long as that is free, too."""
        start, size = block
        while start ^ size in self.free[size]:
            self.free[size].remove(start ^ size)
            start, size = min(start, start ^ size), 2 * size
        self.free[size].append(start)


def rounded(number):
    """The smallest power of two that is not less than a whole number."""
    size = 1
    while size < number:
        size *= 2
    return size


CHUNKS = OrderedDict(
    [
        ("max", lambda request, longest: longest),
        ("pow2", lambda request, longest: min(longest, request.prompt + rounded(request.output))),
        ("oracle", lambda request, longest: request.prompt + request.output),
    ]
)


def memory_shares(requests, places, policy, longest=2048, page=16):
    """The `Shares` of a memory of `places` tokens, until the queue of `requests` is empty."""
    one_of("policy", policy, list(CHUNKS) + ["paged"]), whole("longest", longest), whole("page", page)
    most = max(longest, max(request.prompt + request.output for request in requests))
    if rounded(most) > whole("places", places):
        raise ValueError(
            f"up to {most} tokens take a block of {rounded(most)}, and there are {places} places: "
            "enlarge the memory, or shorten the requests"
        )
    if policy == "paged":
        steps, filled, later, empty = paged(requests, places, page)
    else:
        steps, filled, later, empty = reserved(requests, places, policy, longest)
    if not steps:
        raise ValueError(f"all {len(requests)} requests fit at once, so no queue forms: give more of them")
    whole_time = steps * places
    held = filled + later + empty
    return Shares(filled / whole_time, later / whole_time, empty / whole_time, 1 - held / whole_time)


def reserved(requests, places, policy, longest):
    """Steps, and over all of them: tokens, places reserved, places asked for that stay empty."""
    memory, queue, running = Buddy(places), list(reversed(requests)), []
    steps = filled = later = empty = 0  # the last three in tokens
    while True:
        while queue:
            chunk = CHUNKS[policy](queue[-1], longest)
            block = memory.take(chunk)
            if block is None:
                break
            request = queue.pop()
            running.append([request.output, request.prompt, chunk, block])
        if not queue:
            return steps, filled, later, empty
        for one in running:
            one[0], one[1] = one[0] - 1, one[1] + 1
            filled, later, empty = filled + one[1], later + one[0], empty + one[2] - one[1] - one[0]
            if not one[0]:
                memory.release(one[3])
        steps, running = steps + 1, [one for one in running if one[0]]


def paged(requests, places, page):
    """The same with pages: nothing is reserved, and only the last page of a request is partly empty."""
    free, queue, running = places // page, [[r.output, r.prompt] for r in reversed(requests)], []
    steps = filled = empty = 0
    while True:
        while queue and -(-(queue[-1][1] + 1) // page) <= free:
            running.append(queue.pop())
            free -= -(-(running[-1][1] + 1) // page)
        if not queue:
            return steps, filled, 0, empty
        for one in running:
            one[0], one[1] = one[0] - 1, one[1] + 1
            filled += one[1]
            held = -(-one[1] // page)
            empty += held * page - one[1]
            if not one[0]:
                free += held
        steps, running = steps + 1, [one for one in running if one[0]]
        at = 0
        while at < len(running):
            if running[at][1] % page == 0:  # its next token needs a page
                while not free and at < len(running):
                    last = running.pop()
                    free += -(-last[1] // page)
                    queue.append(last)
                free -= at < len(running)
            at += 1
