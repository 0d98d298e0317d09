"""Lab 06, a scheduler under a budget of pages: right answers in several styles, and what students get wrong."""

from students import judged_here

from allranks import check


def admit(server):
    if not server.waiting or len(server.running) == server.slots:
        return False
    request = server.waiting[0]
    needs = server.needs(request)
    if needs > len(server.free):
        return False
    for _ in range(needs):
        request.pages.append(server.free.pop())
    server.running.append(server.waiting.pop(0))
    return True


def grow(server, request):
    while request in server.running and server.needs(request) > 0:
        if server.free:
            request.pages.append(server.free.pop())
        else:
            preempt(server, server.running[-1])
    return request in server.running


def preempt(server, request):
    finish(server, request)
    request.computed = 0
    server.waiting.insert(0, request)


def finish(server, request):
    server.running.remove(request)
    server.free += request.pages
    request.pages = []


def admit_by_slices(server):
    if len(server.running) >= server.slots:
        return False
    for request in server.waiting[:1]:
        wanted = server.needs(request)
        if wanted <= len(server.free):
            request.pages, server.free = server.free[:wanted], server.free[wanted:]
            server.waiting = server.waiting[1:]
            server.running = [*server.running, request]
            return True
    return False


def grow_by_recursion(server, request):
    if server.needs(request) <= 0:
        return True
    if server.free:
        request.pages.append(server.free.pop(0))
        return grow_by_recursion(server, request)
    newest = server.running[-1]
    preempt(server, newest)
    return False if newest is request else grow_by_recursion(server, request)


def preempt_by_hand(server, request):
    server.running = [other for other in server.running if other is not request]
    server.free.extend(request.pages)
    request.pages.clear()
    request.computed = 0
    server.waiting = [request, *server.waiting]


def finish_by_hand(server, request):
    server.running = [other for other in server.running if other is not request]
    while request.pages:
        server.free.append(request.pages.pop())


RIGHT = [
    (admit, grow, preempt, finish),
    (admit_by_slices, grow_by_recursion, preempt_by_hand, finish_by_hand),
    (admit, grow_by_recursion, preempt, finish_by_hand),
]
WRONG = {
    ("admit", "grow", "preempt", "finish"): {  # edits of all four together
        "slots forgotten": (
            "that is over budget",
            "not server.waiting or len(server.running) == server.slots",
            "not server.waiting",
        ),
        "a slot too many": ("that is over budget", "== server.slots", "> server.slots"),
        "a slot too few": ("fits. A budget may be used up", "== server.slots", ">= server.slots - 1"),
        "pages forgotten": (
            "that is over budget",
            "    if needs > len(server.free):\n        return False\n",
            "    needs = min(needs, len(server.free))\n",
        ),
        "a page for each request": ("that is over budget", "if needs > len", "needs = 1\n    if needs > len"),
        "pages of the prompt's tokens only when computed": (
            "is admitted with",
            "for _ in range(needs):",
            "for _ in range(0):",
        ),
        "a page more than needed": (
            "is admitted with",
            "needs = server.needs(request)",
            "needs = server.needs(request) + 1",
        ),
        "one page always left": (
            "fits. A budget may be used up",
            "if needs > len(server.free)",
            "if needs >= len(server.free)",
        ),
        "takes pages before it refuses": (
            "waits and keeps",
            "    if needs > len(server.free):\n        return False\n    for _ in range(needs):\n        request.pages.append(server.free.pop())\n",
            "    for _ in range(needs):\n        if not server.free:\n            return False\n        request.pages.append(server.free.pop())\n",
        ),
        "a smaller one overtakes": (
            "that is over budget",
            "    request = server.waiting[0]\n",
            "    request = next((r for r in server.waiting if server.needs(r) <= len(server.free)), server.waiting[0])\n",
            "server.running.append(server.waiting.pop(0))",
            "server.waiting.remove(request)\n    server.running.append(request)",
        ),
        "last come, first served": (
            "A preempted request goes back to the head of the queue",
            "request = server.waiting[0]",
            "request = server.waiting[-1]",
            "waiting.pop(0)",
            "waiting.pop()",
        ),
        "stays in the queue": ("running or done", "server.waiting.pop(0)", "server.waiting[0]"),
        "put at the front": (
            "A preempted request goes back to the head of the queue",
            "server.running.append(server.waiting.pop(0))",
            "server.running.insert(0, server.waiting.pop(0))",
        ),
        "preempts to admit": (
            "that is over budget",
            "    if needs > len(server.free):\n        return False\n",
            "    while needs > len(server.free) and server.running:\n        preempt(server, server.running[-1])\n    if needs > len(server.free):\n        return False\n    request = server.waiting[0]\n    needs = server.needs(request)\n    if needs > len(server.free):\n        return False\n",
        ),
        "admits nobody while pages are few": (
            "fits. A budget may be used up",
            "if needs > len(server.free)",
            "if needs > len(server.free) // 2",
        ),
        "admit returns None": (
            "it should return True or False",
            "        return False\n    request =",
            "        return None\n    request =",
        ),
        "copies of pages": (
            "but a running request still has it",
            "server.free.pop())\n    server.running",
            "server.free[0])\n    server.running",
        ),
        "preempts the oldest": (
            "the newest one, so that some request always",
            "preempt(server, server.running[-1])",
            "preempt(server, server.running[0])",
        ),
        "preempts itself": (
            "the newest one, so that some request always",
            "preempt(server, server.running[-1])",
            "preempt(server, request)",
        ),
        "never itself": (
            "the newest one, so that some request always",
            "preempt(server, server.running[-1])",
            "preempt(server, [r for r in server.running if r is not request][-1])",
        ),
        "preempts the longest": (
            "the newest one, so that some request always",
            "preempt(server, server.running[-1])",
            "preempt(server, max(server.running, key=lambda r: len(r.tokens)))",
        ),
        "preempts the one with most pages": (
            "the newest one, so that some request always",
            "preempt(server, server.running[-1])",
            "preempt(server, max(server.running, key=lambda r: len(r.pages)))",
        ),
        "preempts before free ones are taken": (
            "grow preempts a request although",
            "        if server.free:\n            request.pages.append(server.free.pop())\n        else:\n            preempt(server, server.running[-1])",
            "        if len(server.free) > 1:\n            request.pages.append(server.free.pop())\n        else:\n            preempt(server, server.running[-1])",
        ),
        "one page only": (
            "grow says that request",
            "while request in server.running and",
            "if request in server.running and",
        ),
        "always a page": (
            "grow preempts a request although",
            "server.needs(request) > 0:\n        if",
            "server.needs(request) > -1:\n        if",
        ),
        "one page ahead": (
            "grow preempts a request although",
            "server.needs(request) > 0:\n        if",
            "server.needs(request) >= 0:\n        if",
        ),
        "grow says True always": (
            "grow returned True",
            "    return request in server.running",
            "    return True",
        ),
        "grow says whether it got pages": (
            "grow returned False",
            "    return request in server.running",
            "    return len(request.pages) > 1",
        ),
        "computed is kept": ("it would be taken for a decode", "    request.computed = 0\n", ""),
        "computed is one less": (
            "it would be taken for a decode",
            "request.computed = 0",
            "request.computed = len(request.tokens) - 1",
        ),
        "to the tail of the queue": (
            "A preempted request goes back to the head of the queue",
            "server.waiting.insert(0, request)",
            "server.waiting.append(request)",
        ),
        "second in the queue": (
            "A preempted request goes back to the head of the queue",
            "server.waiting.insert(0, request)",
            "server.waiting.insert(1, request)",
        ),
        "tokens start again": (
            "a preempted request keeps what it wrote",
            "    request.computed = 0\n",
            "    request.computed = 0\n    del request.tokens[1:]\n",
        ),
        "pages kept by a preempted one": (
            "waits and keeps",
            "    finish(server, request)\n    request.c",
            "    server.running.remove(request)\n    request.c",
        ),
        "pages listed by both": (
            "the next request to take them would share",
            "    request.pages = []\n",
            "",
        ),
        "pages lost": ("and they are not free", "    server.free += request.pages\n", ""),
        "finished one still runs": ("running or done", "    server.running.remove(request)\n", "    pass\n"),
        "first page lost": (
            "and they are not free",
            "server.free += request.pages",
            "server.free += request.pages[1:]",
        ),
        "free forgets": (
            "and they are not free",
            "server.free += request.pages",
            "server.free = list(request.pages)",
        ),
        "finish removes the oldest": (
            "running or done",
            "server.running.remove(request)",
            "server.running.pop(0)",
        ),
        "finish forgets the tokens": (
            "a preempted request keeps what it wrote",
            "    request.pages = []\n",
            "    request.pages = []\n    request.tokens = []\n",
        ),
        "finish queues it again": (
            "running or done",
            "    request.pages = []\n",
            "    request.pages = []\n    server.waiting.append(request) if request.computed else None\n",
        ),
        "all of the newer ones go": (
            "split_with_sizes expects split_sizes have only non-negative",
            "            preempt(server, server.running[-1])",
            "            for other in server.running[:0:-1]:\n                preempt(server, other)\n            if not server.free:\n                preempt(server, request)",
        ),
        "waits until all are gone": (
            "fits. A budget may be used up",
            "    if not server.waiting or len",
            "    if server.running or not server.waiting or len",
        ),
        "one a call per step": (
            "fits. A budget may be used up",
            "    return True",
            "    server.admitted = getattr(server, 'admitted', 0) + 1\n    return server.admitted % 3 > 0",
        ),
    }
}


def test_every_answer_is_told_what_it_is(monkeypatch):
    judged_here(check.lab_06.scheduler, __name__, monkeypatch)
