"""What if some servers only compute prompts, and others only write?

The model: requests are dealt in turn to a pool of prefill servers, which compute whole prompts and write the
first token. Then the cache moves over the link of that server, one request after another, and the request
goes in turn to a pool of decode servers, which write the rest (Zhong et al. 2024, section 4). A request that
loses its pages there is computed again there. `serve_replicas` deals the same requests to servers that do
both.
"""

from collections import namedtuple

from .. import hardware, memory
from ..inputs import quantity, whole
from .arrivals import Request
from .batching import chunked
from .server import Job, Run, Served, Server, checked, drive, serve

Link = namedtuple("Link", "start token")
"""Seconds that a cache takes on its way: `start` for each request, and `token` for each of its tokens."""


def cache_link(model, name, ranks=1, element=2):
    """The `Link` of caches of this model, over a link of this name (`hardware.LINKS`) for each of `ranks`."""
    wire = hardware.link(name)
    return Link(wire.α, wire.β * memory.kv_cache_bytes(model, 1, 1, whole("ranks", ranks), element))


def dealt(listed, servers):
    """What each of `servers` gets if `listed` is dealt in turn, as cards are."""
    return [listed[first::servers] for first in range(whole("servers", servers))]


def serve_replicas(requests, engine, servers, policy="chunked", **options):
    """The `Run` of requests that are dealt in turn to `servers` equal servers; options: those of `serve`."""
    runs = [serve(each, engine, policy, **options) for each in dealt(requests, servers) if each]
    served = [runs[number % servers].served[number // servers] for number in range(len(requests))]
    return joined(served, runs[0], [run.iterations for run in runs])


def joined(served, like, iterations):
    """The `Run` of several servers: all their steps, in the order in which they end."""
    steps = sorted((step for each in iterations for step in each), key=lambda step: step.end)
    return Run(served, steps, like.page, like.pages)


def serve_split(
    requests, engine, link, prefills=1, decodes=1, decoder=None, budget=512, slots=256, pages=None, page=16
):
    """The `Run` of `requests` on `prefills` servers that compute prompts and `decodes` servers that write.

    engine: of a prefill server; decoder: of a decode server, by default the same; link: a `Link`. budget:
    tokens of a step, on prefill servers of whole prompts; slots, pages, page: of a decode server, as in
    `serve`. Phases: waiting, prefill, moving, waiting again, decode, done; preempted and prefill in between
    if pages run out.
    """
    start, token = quantity("start", link[0]), quantity("token", link[1])
    whole("decodes", decodes), whole("slots", slots)
    if pages is not None:
        whole("pages", pages)
    prompts = [Request(each.arrival, each.prompt, 1) for each in checked(requests, page, pages)]
    runs = [serve(each, engine, "continuous", budget, page=page) for each in dealt(prompts, prefills) if each]
    first = [runs[number % prefills].served[number // prefills] for number in range(len(requests))]
    free, coming = [0.0] * prefills, []
    for number, one in enumerate(first):
        if requests[number].output > 1:
            leaves = max(free[number % prefills], one.times[0])
            free[number % prefills] = leaves + start + token * one.request.prompt
            coming.append((free[number % prefills], number))
    jobs = {number: arrived(requests[number], second) for second, number in coming}
    steps, order = [run.iterations for run in runs], [jobs[number] for _, number in sorted(coming)]
    for each in dealt(order, decodes):
        steps.append(drive(each, Server(page, pages, slots, budget), decoder or engine, writing))
    served = [story(request, first[number], jobs.get(number)) for number, request in enumerate(requests)]
    return joined(served, Run([], [], page, pages), steps)


def arrived(request, second):
    """The `Job` of a request whose prompt is in the cache, and whose first token is all that is missing."""
    return Job(Request(second, request.prompt + 1, request.output - 1), cached=request.prompt)


def writing(server):
    """The policy of a decode server: as `chunked`, where a request that has just come is one that decodes."""
    prompts, decodes = chunked(server)
    new = [job for job, _ in prompts if job.cached == job.target - 1 and not lost(job)]
    return [pair for pair in prompts if pair[0] not in new], decodes + new


def lost(job):
    """Whether a job has ever lost its pages."""
    return any(name == "preempted" for name, _ in job.phases)


def story(request, first, job):
    """The `Served` of a request, from what happened in both pools."""
    if job is None:
        return Served(request, first.times, first.phases)
    phases, again = first.phases[:-2] + [("moving", first.times[0])], False
    for name, second in job.phases:
        again = again or name == "preempted"
        phases.append(("decode" if name == "prefill" and not again else name, second))
    return Served(request, first.times + job.times, phases)
