"""How long does a call take on a device? Kernels run behind the program's back, so it waits for them."""

import statistics
import time


def finish(device):
    """Wait until the device has done all that it was given."""
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def seconds(call, device, repeats=1):
    """Mean seconds of `repeats` calls in a row, the device idle before and after them."""
    finish(device)
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    finish(device)
    return (time.perf_counter() - start) / repeats


def best(call, device, rounds=3, lasting=0.1):
    """Least seconds of a call, over `rounds` rounds of as many calls as take `lasting` seconds."""
    call()
    once = seconds(call, device)
    repeats = max(1, min(100, int(lasting / max(once, 1e-9))))
    return min(seconds(call, device, repeats) for _ in range(rounds))


def interleaved(calls, device, rounds, warm_up=2):
    """Seconds of each call in each round: {name: [seconds]}, `calls` being {name: call}.

    All of them take turns, so that what else the machine does falls on all alike.
    """
    for _ in range(warm_up):
        for call in calls.values():
            call()
    taken = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(seconds(call, device))
    return taken


def slowest(ranks):
    """Of several ranks' lists, each round's slowest: a collective step is over when it is over for all."""
    return [max(round_) for round_ in zip(*ranks, strict=True)]


def median(taken):
    """The median of a list of seconds."""
    return statistics.median(taken)


def ratio_of_medians(ours, theirs):
    """Median of `ours` divided by that of `theirs`: below 1, ours is the faster one."""
    return median(ours) / median(theirs)
