"""A server that the reader's scheduler runs on, and what has to be true of its pages after every call."""

from allranks.check import stubs
from allranks.check.lab_06.common import must


class Server:
    """Requests that wait and that run, both in the order of arrival, and the pages that nobody has."""

    def __init__(self, pages, page, slots):
        self.page, self.slots = page, slots
        self.free = list(range(pages))
        self.waiting, self.running = [], []

    def needs(self, request):
        """How many more pages a request needs for all the tokens that it has."""
        return -(-len(request.tokens) // self.page) - len(request.pages)


class Judged:
    """What `allranks.serving.Engine` asks of a scheduler, answered by the reader's functions and judged.

    answers: (admit, grow, preempt, finish); `preempt` is called by `grow`, never from here.
    """

    static = False

    def __init__(self, pages, page, slots, answers, steps):
        self.server, self.size, self.left = Server(pages, page, slots), pages, steps
        self.admit, self.grow, _, self.finish = answers
        self.everyone, self.done, self.preempted = [], [], 0
        self.seen = {}  # how many tokens each request has had

    @property
    def pool(self):
        return self

    @property
    def page(self):
        return self.server.page

    @property
    def waiting(self):
        return self.server.waiting

    @property
    def running(self):
        return self.server.running

    def add(self, request):
        self.everyone.append(request)
        self.server.waiting.append(request)

    def schedule(self):
        """The plan of a step: running requests that could grow, then those who are admitted."""
        server, plan = self.server, []
        self.left -= 1
        must(self.left, "The requests are not served: the scheduler takes ten times the steps it needs.")
        for request in list(server.running):
            if request in server.running and self.grows(request):
                plan.append((request, request.missing))
        while server.waiting and self.admits():
            plan.append((server.running[-1], server.running[-1].missing))
        self.judge_plan(plan)
        return plan

    def grows(self, request):
        server = self.server
        free, needed, running = len(server.free), server.needs(request), list(server.running)
        computed = [other.computed for other in running]
        found = self.asked("grow", self.grow, request)
        lost = [other for other in running if other not in server.running]
        for other, count in zip(running, computed, strict=True):
            if other in lost:
                other.lost, other.preemptions = max(other.lost, count), other.preemptions + 1
        self.preempted += len(lost)
        must(
            not lost or free < needed,
            f"grow preempts a request although {free} pages are free and {needed} are needed.",
        )
        oldest = self.number(running[0])
        self.audit_requests()
        self.audit_pages()
        must(
            running[0] not in lost,
            f"grow preempts request {oldest}, the oldest that runs. Take pages from the newest one, so "
            "that some request always finishes.",
        )
        self.audit_order()
        must(
            found == (request in server.running),
            f"grow returned {found!r}, but request {self.number(request)} "
            f"{'still runs' if request in server.running else 'was preempted'}.",
        )
        must(
            not found or server.needs(request) <= 0,
            f"grow says that request {self.number(request)} runs, but its {len(request.tokens)} tokens have "
            f"{len(request.pages)} pages of {server.page}.",
        )
        return found

    def admits(self):
        server, first = self.server, self.server.waiting[0]
        free, needed, running = len(server.free), server.needs(first), len(server.running)
        fits = needed <= free and running < server.slots
        found = self.asked("admit", self.admit)
        where = (
            f"request {self.number(first)}, which needs {needed} pages where {free} are free, as number "
            f"{running + 1} in {server.slots} slots"
        )
        must(fits or not found, f"admit accepts {where}: that is over budget.")
        must(found or not fits, f"admit refuses {where}, but it fits. A budget may be used up completely.")
        self.audit()
        must(
            not found or (server.running[-1:] == [first] and first not in server.waiting),
            "admit returned True, but the first waiting request has not moved to the end of server.running.",
        )
        must(
            not found or not server.needs(first),
            f"Request {self.number(first)} is admitted with {len(first.pages)} pages of {server.page} for "
            f"{len(first.tokens)} tokens.",
        )
        return found

    def asked(self, name, function, *given):
        """What the reader's function returns: True or False."""
        found = function(self.server, *given)
        try:
            stubs.is_returned(found, "True or False", name)
        except AssertionError as sentence:
            must(False, str(sentence))
        must(found is True or found is False, f"{name} returned {found!r}; it should return True or False.")
        return found

    def judge_plan(self, plan):
        planned = [request for request, _ in plan]
        alive = [request for request in self.everyone if request not in self.done]
        for request in planned:
            must(
                request in self.running,
                f"Request {self.number(request)} has lost its pages in the step that it was to compute in: "
                "only requests that come after the growing one can be preempted.",
            )
        must(
            not alive or alive[0] in planned,
            f"Request {self.number(alive[0]) if alive else 0} is the oldest but computes nothing in this "
            "step: it starves.",
        )

    def advance(self, request, count):
        request.computed += count

    def leave(self, request):
        self.finish(self.server, request)
        self.done.append(request)
        name = f"Request {self.number(request)}"
        must(request not in self.running, f"{name} has all its tokens, but still runs after finish.")
        self.audit()

    def number(self, request):
        return self.everyone.index(request)

    def audit(self):
        """Every request is in one place, and every page belongs to one request or is free, once."""
        self.audit_requests()
        self.audit_order()
        self.audit_pages()

    def audit_requests(self):
        for number, request in enumerate(self.everyone):
            name = f"Request {number}"
            places = self.waiting.count(request) + self.running.count(request) + self.done.count(request)
            must(
                places == 1, (f"{name} is in {places} of the lists; expected one: waiting, running or done.")
            )
            start = len(request.prompt)
            must(
                request.tokens[:start] == request.prompt and len(request.tokens) >= self.seen.get(number, 0),
                f"{name} has lost tokens: a preempted request keeps what it wrote.",
            )
            self.seen[number] = len(request.tokens)
            if request in self.running:
                continue
            what = "waits" if request in self.waiting else "is finished"
            must(
                not request.pages or not set(request.pages) & set(self.server.free),
                f"{name} {what}, its pages are free, but it still lists {len(request.pages)} of them: the "
                "next request to take them would share them.",
            )
            must(not request.pages, f"{name} {what} and keeps {len(request.pages)} pages.")
            must(
                request in self.done or not request.computed,
                f"{name} waits without pages, and `computed` is {request.computed}: when it runs again, it "
                "would be taken for a decode, and attend to another request's keys.",
            )

    def audit_order(self):
        order = [self.number(request) for request in (*self.running, *self.waiting)]
        must(
            order == sorted(order),
            f"Requests run and wait in the order {order}: one overtakes another. A preempted request goes "
            "back to the head of the queue; admit the first one first.",
        )

    def audit_pages(self):
        held = [page for request in self.running for page in request.pages]
        free = list(self.server.free)
        for page in held + free:
            must(
                isinstance(page, int) and 0 <= page < self.size,
                f"{page!r} is not a page; take pages from server.free.",
            )
            must(held.count(page) < 2, f"Page {page} belongs to two requests.")
            must(
                not (page in held and page in free),
                f"Page {page} is free, but a running request still has it.",
            )
            must(free.count(page) < 2, f"Page {page} is in server.free twice.")
        lost = self.size - len(held) - len(free)
        must(not lost, f"{lost} pages are lost: no request has them, and they are not free.")
