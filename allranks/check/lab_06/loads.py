"""Settings for a load, scored by goodput on arrivals that the page does not show."""

import functools
import random
from collections import namedtuple

from allranks import inference, memory
from allranks.check import exercise, stubs
from allranks.check.lab_06.common import on_ranks
from allranks.check.labs import is_written
from allranks.transformer import PRESETS

PAGE, WORKSPACE = 16, 500_000  # tokens of a page; bytes that a step needs for each token of its budget
BUDGETS = (128, 256, 512, 1024, 2048, 4096)
SHAPE = PRESETS["llama3-8b"]
SHARE = 0.95  # of the best goodput is asked
COUNT = 160  # requests of a load
# Hidden loads: three can be odd, and would fail one right answer in a hundred; with six more they do not.
HIDDEN, MORE_HIDDEN = 3, 6
PATIENCE = 60.0  # seconds; an answer may simulate every setting of every service
Service = namedtuple("Service", "rate prompts outputs first later room")
"""Requests a second, bounds of their tokens, two objectives in seconds, bytes for cache and workspace."""
SERVICES = {
    "chat": Service(12, (200, 2000), (50, 300), 0.5, 0.02, 8e9),
    "one word": Service(32, (200, 2000), (5, 20), 0.5, 0.1, 8e9),
    "little memory": Service(6, (500, 3000), (50, 200), 2.0, 0.016, 3e9),
}

MORE = {  # services that the page does not name: too few pages for a large batch; steps that may take long
    "few pages": Service(20, (200, 2000), (100, 300), 0.3, 0.3, 8e9),
    "patient": Service(30, (200, 2000), (100, 300), 0.25, 0.5, 60e9),
}
EVERY = SERVICES | MORE


def server():
    """The `Engine` of all three services: Llama 3 8B on one H100 at 60 % of its peak, 2 ms more a step."""
    return inference.engine(SHAPE, "h100", efficiency=0.6, overhead=0.002)


@functools.lru_cache(maxsize=100)
def new_load(name, seed):
    """The requests of a service, the same for equal seeds."""
    service = EVERY[name]
    arrivals = inference.poisson(service.rate, COUNT, seed)
    prompts = inference.lengths(*service.prompts, COUNT, seed)
    return inference.requests(arrivals, prompts, inference.lengths(*service.outputs, COUNT, seed + 1))


def pages_of(name, budget):
    """The pages that fit beside the workspace of a budget."""
    left = EVERY[name].room - WORKSPACE * budget
    return int(left // memory.kv_cache_bytes(SHAPE, PAGE))


@functools.lru_cache(maxsize=1000)
def goodputs(name, seed, policy, budget, pages):
    """Requests a second within both objectives, and the parts within the first and within the second."""
    service = EVERY[name]
    run = inference.serve(new_load(name, seed), server(), policy, budget, pages=pages, page=PAGE)
    parts = (service.first, float("inf")), (float("inf"), service.later)
    parts = (inference.mean(_within(each, *limits) for each in run.served) for limits in parts)
    return inference.goodput(run, service.first, service.later), *parts


def _within(served, first, later):
    return inference.ttft(served) <= first and inference.tpot(served) <= later


def score(name, seeds, *settings):
    """The three numbers of `goodputs`, on average over some loads."""
    return [inference.mean(values) for values in zip(*(goodputs(name, seed, *settings) for seed in seeds))]


def compared(name, seeds, *settings):
    """The score of these settings, the best goodput of all candidates, and the budget that reaches it."""
    best, (_, budget, _) = max((score(name, seeds, *each)[0], each) for each in candidates(name))
    return score(name, seeds, *settings), best, budget


def candidates(name):
    """Every (policy, budget, pages) that is tried; whole prompts need workspace for the longest."""
    longest = EVERY[name].prompts[1]
    return [
        (policy, budget, pages_of(name, budget))
        for policy in ("continuous", "chunked")
        for budget in BUDGETS
        if policy == "chunked" or budget >= longest
    ]


def new_seeds(count=HIDDEN):
    return [10 * seed for seed in random.sample(range(100, 10**6), count)]


def planned(answer):
    found = {}
    for name, service in EVERY.items():
        found[name] = answer(new_load(name, 1), server(), SHAPE, *service[3:], WORKSPACE)
    return found


@exercise
def plan(answer):
    """`answer(load, engine, shape, first, later, room, workspace)`: (policy, budget, pages)."""
    is_written(answer)
    found = on_ranks(planned, answer, timeout=PATIENCE)[0]
    seeds = new_seeds()
    for name, settings in found.items():
        judge_plan(name, settings, seeds)
    return (
        f"The settings reach {100 * SHARE:.0f} % or more of the best goodput on hidden loads, for each of "
        f"{len(EVERY)} services."
    )


def judge_plan(name, settings, seeds):
    """Fail unless these settings fit into the memory and reach what is asked on the loads of the seeds."""
    stubs.is_returned(settings, "(policy, budget, pages)", "plan")
    assert isinstance(settings, tuple | list) and len(settings) == 3, (
        f"plan returned {settings!r}; expected (policy, budget, pages)."
    )
    policy, budget, pages = settings
    assert policy in ("continuous", "chunked"), (
        f"plan returned {settings!r}; the first is the policy, 'continuous' or 'chunked'."
    )
    service, longest = EVERY[name], EVERY[name].prompts[1]
    where = f"For {name!r}, {policy}, a budget of {budget} tokens and {pages} pages"
    assert all(isinstance(n, int) and n > 0 for n in (budget, pages)), f"{where}: whole numbers above 0."
    assert policy == "chunked" or budget >= longest, (
        f"{where}: a whole prompt has up to {longest} tokens, which all need workspace."
    )
    needed = pages * memory.kv_cache_bytes(SHAPE, PAGE) + WORKSPACE * budget
    assert needed <= service.room, (
        f"{where} need {needed / 1e9:.2f} GB of {service.room / 1e9:.2f}: the workspace of a step and the "
        "pages share the room."
    )
    most = service.prompts[1] + service.outputs[1] - 1
    assert pages * PAGE >= most, f"{where}: the longest request caches {most} tokens."
    (reached, first, later), best, right = compared(name, seeds, policy, budget, pages)
    if reached < SHARE * best:
        seeds = [*seeds, *new_seeds(MORE_HIDDEN)]
        (reached, first, later), best, right = compared(name, seeds, policy, budget, pages)
    late = "Compare other policies, and use all the pages that fit."
    if pages >= pages_of(name, budget) and budget != right:
        late = (
            "A larger budget computes prompts sooner."
            if budget < right
            else "A smaller budget makes steps shorter, and leaves more room for pages."
        )
    assert reached >= SHARE * best, (
        f"{where} reach {reached:.1f} requests a second on hidden arrivals; expected {SHARE * best:.1f}. "
        f"{first:.0%} of the first tokens and {later:.0%} of the later ones are in time. {late}"
    )
