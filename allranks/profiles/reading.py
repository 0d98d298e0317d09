"""What does a trace of `torch.profiler` say of a rank? Its phases, when it computed, its collectives.

The file is what `export_chrome_trace` writes: a list of events with a name, a category, a thread, a start and
a duration in microseconds after `baseTimeNanoseconds`. On a GPU a kernel is computation unless NCCL's name
begins its own. On a CPU it is torch's operators that compute, outside of calls that communicate, and gloo's
collectives are annotations of the threads that carry them out.
"""

from collections import namedtuple

from .intervals import difference, union

Span = namedtuple("Span", "name start end")
"""What the program called a part of itself, in seconds."""

Collective = namedtuple("Collective", "kind group start end")
"""A collective as one rank saw it: from when this rank entered it to when it was done, in seconds.

group: the name and the ranks of its process group; "" where the trace does not say, as under gloo.
"""

Recorded = namedtuple("Recorded", "rank world_size origin phases computing collectives")
"""One rank's trace. Times are seconds after `origin`, which is nanoseconds on that machine's clock.

phases: a list of `Span`. computing: sorted intervals (start, end). collectives: a list of `Collective`.
"""

# How NCCL's kernels and torch's calls name a collective. Messages between two ranks come last: "send_recv".
KINDS = (
    ("all_reduce", ("allreduce", "all_reduce")),
    ("all_gather", ("allgather", "all_gather")),
    ("reduce_scatter", ("reducescatter", "reduce_scatter")),
    ("all_to_all", ("alltoall", "all_to_all")),
    ("barrier", ("barrier",)),
    ("broadcast", ("broadcast",)),
    ("gather", ("gather",)),
    ("scatter", ("scatter",)),
    ("reduce", ("reduce",)),
    ("send_recv", ("sendrecv", "send", "recv")),
)
COPIES = ("gpu_memcpy", "gpu_memset")
CALLS = ("c10d::", "_c10d_functional::")
WRAPPERS = ("autograd::", "torch::autograd::")  # they contain operators, hooks, and whatever hooks wait for


def read(trace):
    """The `Recorded` of a trace, the content of one JSON file; ValueError if it is none of torch's.

    trace: a dictionary with `traceEvents`, and with `distributedInfo` if a process group existed.
    """
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    about = trace.get("distributedInfo") if isinstance(trace, dict) else None
    if not events:
        raise ValueError("this is not a trace of torch.profiler: it has no traceEvents")
    if not about or "rank" not in about:
        raise ValueError("the trace names no rank: profile after init_process_group, not before it")
    timed = [event for event in events if event.get("ph") == "X" and event.get("cat") != "Trace"]
    if not timed:
        raise ValueError(f"the trace of rank {about['rank']} has no event with a duration")
    first = min(event["ts"] for event in timed)

    def seconds(event):
        start = (event["ts"] - first) / 1e6
        return start, start + event["dur"] / 1e6

    computing, collectives, phases = [], [], []
    on_device = any(event.get("cat") == "kernel" for event in timed)
    for event in timed:
        name, category = event["name"], event.get("cat")
        if (category == "kernel" and not name.startswith("nccl")) or category in COPIES:
            computing.append(seconds(event))
        elif category == "kernel" or name.startswith("gloo:"):
            collectives.append(_collective(event, *seconds(event)))
        elif category == "user_annotation" and not name.startswith("nccl:"):
            phases.append(Span(_short(name), *seconds(event)))
    if not on_device:
        computing = _operators(timed, seconds)
    return Recorded(
        about["rank"],
        about.get("world_size", 1),
        trace.get("baseTimeNanoseconds", 0) + int(first * 1000),
        _outermost(phases),
        union(computing),
        sorted(collectives, key=lambda each: each.start),
    )


def _operators(events, seconds):
    """When operators ran, without those that communicate and without the threads of gloo: (start, end)s."""
    carriers, ran, sent = set(), {}, {}
    for event in events:
        thread = f"{event['pid']} {event['tid']}"
        name = event["name"]
        if name.startswith("gloo:"):
            carriers.add(thread)
        elif event.get("cat") == "cpu_op" and name.startswith(CALLS):
            sent.setdefault(thread, []).append(seconds(event))
        elif event.get("cat") == "cpu_op" and "::" in name and not name.startswith(WRAPPERS):
            ran.setdefault(thread, []).append(seconds(event))
    found = []
    for thread in sorted(ran):
        if thread not in carriers:
            found += difference(ran[thread], sent.get(thread, []))
    return found


def _collective(event, start, end):
    about = event.get("args") or {}
    name = str(about.get("Collective name") or event["name"]).lower()
    group = ""
    if "Process Group Name" in about:
        group = f"{about['Process Group Name']} {about.get('Process Group Ranks', '')}"
    for kind, names in KINDS:
        if any(each in name for each in names):
            return Collective(kind, group, start, end)
    return Collective("other", group, start, end)


def _short(name):
    """`Optimizer.step#AdamW.step` is what torch calls the step of an optimizer."""
    return name.split("#")[0]


def _outermost(phases):
    """The phases, in order, that lie in no other one; a profiler's whole step is none."""
    found, until = [], None
    for phase in sorted(phases, key=lambda each: (each.start, -each.end)):
        if phase.name.startswith("ProfilerStep"):
            continue
        if until is None or phase.end > until:
            found.append(phase)
            until = phase.end
    return found
