"""Which tokens does a server compute in each step, and when does every request get its tokens?

The model: before each step a policy (`batching`) forms a batch; the step ends after the seconds that an
`Engine` says, and only then do its tokens appear and new requests enter. The cache is a pool of pages of
`page` tokens (Kwon et al. 2023, section 4). When it is empty, the request that came last gives its pages back
and later computes its prompt and its tokens again (section 4.5, recomputation). Requests are served in the
order of arrival.
"""

from collections import namedtuple

from ..inputs import one_of, quantity, whole
from .batching import POLICIES

Served = namedtuple("Served", "request times phases")
"""What became of a `Request`: the second of each token, and its `phases`, pairs (name, second
when it began): waiting, prefill, decode, preempted (waiting again), done."""

Iteration = namedtuple("Iteration", "start end prompt_tokens decoded running pages")
"""A step from `start` to `end`: how many tokens of prompts it computed, how many requests `decoded` a token,
how many held pages, and how many pages they held."""

Run = namedtuple("Run", "served iterations page pages")
"""All `Served` in the order of arrival, all `Iteration`s, tokens a page, pages of the pool or None."""


class Job:
    """A request inside the server: tokens in the cache, which may have come with it, pages, and the times of
    its tokens."""

    def __init__(self, request, cached=0):
        self.request, self.output = request, request.output
        self.cached, self.pages, self.target = cached, 0, request.prompt
        self.times, self.phases = [], [("waiting", request.arrival)]


class Server:
    """Requests that wait and requests that run, in the order of arrival, and how many pages are held."""

    def __init__(self, page, pages, slots, budget):
        self.waiting, self.running = [], []
        self.page, self.pool, self.slots, self.budget = page, pages, slots, budget
        self.held, self.now = 0, 0.0

    def admit(self):
        """Let the first in the queue in, with pages for its whole prompt; return it, or None."""
        if not self.waiting or len(self.running) >= self.slots:
            return None
        job = self.waiting[0]
        needed = -(-job.target // self.page)
        if self.pool is not None and needed > self.pool - self.held:
            return None
        self.waiting.pop(0)
        self.running.append(job)
        job.pages, self.held = needed, self.held + needed
        job.phases.append(("prefill", self.now))
        return job

    def decodes(self):
        """The requests that take their next token, each with a page for it; the last may lose theirs."""
        batch, at, running = [], 0, self.running
        while at < len(running):
            job = running[at]
            if job.cached >= job.target and (job.cached < job.pages * self.page or self.grow(job)):
                batch.append(job)
            at += 1
        return batch

    def grow(self, job):
        """Give `job` a page, if need be one of the last that came; return whether it still runs."""
        while self.pool is not None and self.held >= self.pool:
            last = self.running[-1]
            self.preempt(last)
            if last is job:
                return False
        job.pages, self.held = job.pages + 1, self.held + 1
        return True

    def preempt(self, job):
        """Take all pages of `job`, the last that runs: it is the first in the queue again."""
        self.running.pop()
        self.waiting.insert(0, job)
        self.held -= job.pages
        job.pages, job.cached, job.target = 0, 0, job.request.prompt + len(job.times)
        job.phases.append(("preempted", self.now))

    def run(self, engine, prefills, decodes):
        """The `Iteration` that computes pairs (job, tokens of its prompt), and jobs that take one token."""
        start, prompt_tokens, pairs, cached = self.now, 0, 0, 0
        for job, tokens in prefills:
            job.cached += tokens
            prompt_tokens += tokens
            pairs += tokens * job.cached
            cached += job.cached
        one = 0
        for job in decodes:
            job.cached += 1
            one += job.cached
        count = len(decodes)
        self.now = end = start + engine.seconds(prompt_tokens + count, pairs + one, cached + one)
        iteration = Iteration(start, end, prompt_tokens, count, len(self.running), self.held)
        begun = [job for job, _ in prefills if job.cached == job.target]
        for job in begun:
            job.phases.append(("decode", end))
        for job in begun + decodes:
            job.times.append(end)
            if len(job.times) == job.output:
                self.leave(job, end)
        return iteration

    def leave(self, job, end):
        """A request is done."""
        self.running.remove(job)
        self.held -= job.pages
        job.phases.append(("done", end))


def serve(requests, engine, policy="chunked", budget=512, slots=256, pages=None, page=16):
    """The `Run` of `requests` (a list of `Request` in the order of arrival) on an `Engine`.

    policy: one of `POLICIES`. budget: tokens of a step, for "continuous" of its prompts, for "static" without
    effect; slots: the most requests that run at once; pages: of the pool, None for no limit; page: tokens of
    each. ValueError if the pool is too small for some request alone.
    """
    form = POLICIES[one_of("policy", policy, list(POLICIES))]
    whole("budget", budget), whole("slots", slots), whole("page", page)
    if pages is not None:
        whole("pages", pages)
    jobs = [Job(request) for request in checked(requests, page, pages)]
    iterations = drive(jobs, Server(page, pages, slots, budget), engine, form)
    return Run([Served(job.request, job.times, job.phases) for job in jobs], iterations, page, pages)


def drive(jobs, server, engine, form):
    """Take all `jobs` through the server as `form`, a policy, says; return the `Iteration`s."""
    iterations, next_one, total = [], 0, len(jobs)
    while True:
        while next_one < total and jobs[next_one].request.arrival <= server.now:
            server.waiting.append(jobs[next_one])
            next_one += 1
        prefills, decodes = form(server)
        if prefills or decodes:
            iterations.append(server.run(engine, prefills, decodes))
        elif next_one < total:
            server.now = jobs[next_one].request.arrival
        else:
            return iterations


def checked(requests, page, pages):
    """Return the requests; ValueError unless each can be served, and they are in the order of arrival."""
    if not requests:
        raise ValueError("there are no requests: give at least one")
    before = 0.0
    for number, (arrival, prompt, output) in enumerate(requests):
        quantity("arrival", arrival), whole("prompt", prompt), whole("output", output)
        if arrival < before:
            raise ValueError(
                f"request {number} arrives at {arrival} s, before the one listed before it: sort by arrival"
            )
        needed = -(-(prompt + output - 1) // page)
        if pages is not None and needed > pages:
            raise ValueError(
                f"request {number} needs {needed} pages of {page} tokens, and the pool has {pages}: "
                "enlarge the pool, or shorten the request"
            )
        before = arrival
    return requests
