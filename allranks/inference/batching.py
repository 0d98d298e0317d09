"""What goes into the next batch, and what has to wait?

A policy looks at the server and returns (prompts, decodes): pairs of a request and the tokens of its prompt
to compute, and the requests that take their next token. A request whose prompt is done takes one a step.

static      A batch is formed when the server is empty, and nobody enters before its last request is done,
            as in serving by whole requests (Yu et al. 2022, section 3). Requests that are done leave, which
            is kinder than padding.
continuous  A batch is formed for every step (Yu et al. 2022), whole prompts first: while one is computed,
            nobody decodes. The first scheduler of vLLM worked this way.
chunked     Every step first takes the decodes, then fills a budget of tokens with pieces of prompts, so that
            nobody who decodes is left out (Sarathi-Serve, Agrawal et al. 2024, section 4).
"""

from collections import OrderedDict


def static(server):
    """As many whole prompts as fit into an empty server, else the next token of all."""
    if server.running:
        return [], server.decodes()
    while server.admit():
        pass
    return [(job, job.target) for job in server.running], []


def continuous(server):
    """Whole prompts as long as there are pages for one, else the next token of all."""
    prompts = whole_prompts(server)
    return prompts, [] if prompts else server.decodes()


def whole_prompts(server):
    """Requests from the queue with all of their prompts: as many as the budget takes, and at least one."""
    prompts, left = [], server.budget
    while server.waiting and (not prompts or server.waiting[0].target <= left):
        job = server.admit()
        if job is None:
            break
        prompts.append((job, job.target))
        left -= job.target
    return prompts


def chunked(server):
    """The next token of all, and in what is left of the budget pieces of prompts, begun ones first."""
    decodes = server.decodes()
    prompts, left = [], server.budget - len(decodes)
    for job in server.running:
        if job.cached < job.target and left > 0:
            tokens = min(left, job.target - job.cached)
            prompts.append((job, tokens))
            left -= tokens
    while left > 0:
        job = server.admit()
        if job is None:
            break
        tokens = min(left, job.target - job.cached)
        prompts.append((job, tokens))
        left -= tokens
    return prompts, decodes


POLICIES = OrderedDict([("static", static), ("continuous", continuous), ("chunked", chunked)])
