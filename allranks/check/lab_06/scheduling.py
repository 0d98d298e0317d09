"""A scheduler under a budget of pages."""

import random

import torch

from allranks.check import exercise
from allranks.check.lab_06.common import each, must, new_llama, new_tokens, on_ranks
from allranks.check.lab_06.judged import Judged
from allranks.check.labs import hidden, is_written
from allranks.serving import Cache, Engine, Request, generate

PAGE = 4
OTHERS = (12, 3, 2), (8, 3, 3), (5, 3, 5), (3, 3, 8)  # pages, slots, tokens of a page; a submission gets one


def new_load(count=6, longest=20):
    """Requests as (prompt, new, seed, arrival); together they need more pages than `pages_for`."""
    load, arrival = [], 0
    for number in range(count):
        known = random.randint(1, 6)
        new = random.randint(longest - 8, longest - 4) - known
        load.append((new_tokens(known).tolist(), new, number if number % 2 else None, arrival))
        arrival += random.choice([0, 0, 1, 3])
    return load


def alone(model, load):
    """The tokens of each request, served alone in this process with a dense cache."""
    tokens = []
    for prompt, new, seed, _ in load:
        cache = Cache(model.shape, 1, len(prompt) + new, dtype=torch.float64)
        tokens.append(generate(model, torch.tensor([prompt]), new, cache, seed)[0][0].tolist())
    return tokens


def served(model, load, scheduler):
    """The tokens of each request, served together; on a rank."""
    requests = [Request(*each) for each in load]
    Engine(model, scheduler).run(requests)
    return [request.tokens for request in requests]


def _scheduled(model, load, answers, pages, slots, page=PAGE):
    steps = 10 * sum(new for _, new, *_ in load)
    scheduler = Judged(pages, page, slots, answers, steps)
    tokens = served(model, load, scheduler)
    must(scheduler.preempted, "No request was preempted, although there are too few pages for all.")
    return tokens


@exercise
def scheduler(admit, grow, preempt, finish):
    """`admit(server)`, `grow(server, request)`, `preempt(…)`, `finish(…)` serve requests in few pages."""
    answers = admit, grow, preempt, finish
    is_written(*answers)
    sizes = (6, 3), (7, 4), *hidden(lambda draw: [draw.choice(OTHERS)])
    cases = [(new_llama(), new_load(), answers, *each) for each in sizes]
    for (model, load, *_), found in zip(cases, on_ranks(each, _scheduled, cases)[0], strict=True):
        for number, (tokens, right) in enumerate(zip(found, alone(model, load), strict=True)):
            assert tokens == right, (
                f"Request {number} has other tokens than when it is served alone: another request used "
                "its pages."
            )
    return "Admitted, grown, preempted and finished: no page is lost, no request starves, no token changes."
