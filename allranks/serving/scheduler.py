"""Who computes in the next step, and who waits?

The batch is formed anew in each step (iteration-level scheduling, Yu et al. 2022, section 3). Requests queue,
run, and give their pages back when older ones need them. Standard library only.
"""

from collections import deque
from math import inf


class Scheduler:
    """At most `slots` requests run, and compute at most `budget` tokens in a step; first come, first served.

    A `static` batch admits nobody until all have finished. With `reserve` a request has the pages of all
    its tokens before it runs; otherwise it gets them as it grows, if need be from the most recent one.
    """

    def __init__(self, pool, slots, budget=None, static=False, reserve=False):
        if slots < 1 or (budget is not None and budget < slots):
            raise ValueError(
                f"{slots} slots and a budget of {budget} tokens: each slot needs one token a step"
            )
        self.pool, self.slots, self.budget = pool, slots, budget
        self.static, self.reserve = static, reserve
        self.waiting, self.running = deque(), []  # both in order of arrival

    def pages(self, tokens):
        return -(-tokens // self.pool.page)

    def add(self, request):
        """Queue a request; ValueError if it could never run."""
        cached = len(request.prompt) + request.new - 1  # the last token is never fed
        if self.pages(cached) > self.pool.size:
            raise ValueError(
                f"{cached} tokens need {self.pages(cached)} pages of {self.pool.page}, and the pool has "
                f"{self.pool.size}: enlarge the pool, or ask for fewer tokens"
            )
        self.waiting.append(request)

    def schedule(self):
        """Return the requests of the next step, and how many tokens each computes: [(request, count)]."""
        plan, left = [], self.budget or inf
        for request in self.turns():
            count = min(request.missing, left)
            plan.append((request, count))
            left -= count
            if not left:
                break
        return plan

    def turns(self):
        """Whose turn it is: running requests, only the last of which can be in mid-prompt, then the queue."""
        closed = self.static and bool(self.running)  # as it is now
        for request in list(self.running):
            if request in self.running and self.grow(request):
                yield request
        while self.waiting and not closed and len(self.running) < self.slots and self.admit():
            yield self.running[-1]

    def grow(self, request):
        """Get the page of the next token, preempting the most recent requests; False if `request` is one."""
        while len(request.pages) < self.pages(len(request.tokens)) and request in self.running:
            if self.pool.available:
                request.pages.append(self.pool.take())
            else:
                self.preempt(self.running[-1])
        return request in self.running

    def admit(self):
        """Let the first in the queue run, with pages for all tokens it has; False if there are too few."""
        request = self.waiting[0]
        total = len(request.prompt) + request.new - 1 if self.reserve else len(request.tokens)
        shared = self.pool.share(request.tokens)
        if self.pages(total) - len(shared) > self.pool.available:
            self.pool.release(shared)
            return False
        request.pages = shared + [self.pool.take() for _ in range(self.pages(total) - len(shared))]
        request.computed = len(shared) * self.pool.page
        request.reused += request.computed
        self.running.append(self.waiting.popleft())
        return True

    def preempt(self, request):
        """Send a running request back to the head of the queue: its pages are lost, its tokens are not."""
        self.leave(request)
        request.lost, request.computed = max(request.lost, request.computed), 0
        request.preemptions += 1
        self.waiting.appendleft(request)

    def leave(self, request):
        self.running.remove(request)
        self.pool.release(request.pages)
        request.pages = []

    def advance(self, request, count):
        """`count` more tokens of a request have been computed."""
        request.computed += count
        self.pool.remember(request.pages, request.tokens[: request.computed])
