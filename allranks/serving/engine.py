"""How does an engine serve many requests at once? Step by step, all tokens of a step in one row.

Everything but attention works on each token alone and does not ask whose it is; attention goes through each
request's pages in turn (selective batching, Yu et al. 2022, section 3; PagedAttention, Kwon et al. 2023,
section 4). Requests draw from generators of their own, so that no token depends on who else is served.
"""

from collections import deque

import torch

from allranks.model import GREYS

from .paged import PagedCache


class Packed(PagedCache):
    """A pool of pages, and the requests of one step behind each other: `plan` lists (request, count)."""

    plan = ()

    def attend(self, layer, q, k, v, positions):
        counts = [count for _, count in self.plan]
        parts = zip(*(t.split(counts, 2) for t in (q, k, v)), positions.split(counts), strict=True)
        outs = []
        for (request, _), part in zip(self.plan, parts, strict=True):
            self.tables, self.length = torch.tensor([request.pages]), request.computed
            outs.append(PagedCache.attend(self, layer, *part))
        return torch.cat(outs, 2)


class Engine:
    """`model` serves what `scheduler` schedules.

    `log` is a list of steps, each a dictionary {request: (phase, tokens computed)}; `logits` has a row for
    each token that a request has written.
    """

    def __init__(self, model, scheduler):
        weight, pool = next(model.parameters()), scheduler.pool
        self.model, self.scheduler, self.device = model, scheduler, weight.device
        options = {"dtype": weight.dtype, "device": weight.device}
        self.cache = Packed(model.shape, 1, pool.size, pool.page, **options)
        self.log, self.logits, self.draws, self.held = [], {}, {}, []

    def run(self, requests):
        """Serve `requests`, each of which joins in the step of its arrival, and return the log."""
        coming = deque(sorted(requests, key=lambda request: request.arrival))
        while coming or self.scheduler.waiting or self.scheduler.running:
            while coming and coming[0].arrival <= len(self.log):
                self.scheduler.add(coming.popleft())
            self.step()
        return self.log

    @torch.no_grad()
    def step(self):
        """Compute what is scheduled, and write a token for each request that has none missing."""
        if not self.scheduler.running:
            self.held = []
        plan = self.cache.plan = self.scheduler.schedule()
        self.log.append(self.phases(plan))
        if not plan:
            return
        row = [token for r, count in plan for token in r.tokens[r.computed : r.computed + count]]
        at = [position for r, count in plan for position in range(r.computed, r.computed + count)]
        logits = self.model(self.tensor([row]), self.cache, self.tensor(at))[0, :, :GREYS]
        last = self.tensor([count for _, count in plan]).cumsum(0) - 1
        for (request, count), following in zip(plan, logits[last], strict=True):
            self.scheduler.advance(request, count)
            if not request.missing:
                self.write(request, following)

    def tensor(self, numbers):
        return torch.tensor(numbers, device=self.device)

    def write(self, request, logits):
        self.logits.setdefault(request, []).append(logits)
        if request.seed is None:
            grey = logits.argmax()
        else:
            draws = self.draws.setdefault(request, torch.Generator(self.device).manual_seed(request.seed))
            grey = torch.multinomial(logits.softmax(-1), 1, generator=draws)
        request.tokens.append(int(grey))
        if len(request.tokens) == len(request.prompt) + request.new:
            self.scheduler.leave(request)
            self.held.append(request)

    def phases(self, plan):
        """What each request does in this step; in a static batch, finished ones still occupy their slots."""
        phases = dict.fromkeys([*self.scheduler.waiting, *self.scheduler.running], ("waiting", 0))
        phases |= {request: ("preempted", 0) for request in self.scheduler.waiting if request.preemptions}
        phases |= {request: (request.phase, count) for request, count in plan}
        held = self.held if self.scheduler.static else []
        return phases | dict.fromkeys(held, ("idle", 0))
