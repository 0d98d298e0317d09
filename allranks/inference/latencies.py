"""How long did users wait, for the first token and for each one after it? And how full was the pool?

Time to first token (TTFT) counts from the arrival. Time per output token (TPOT) is the mean over the tokens
after the first (Zhong et al. 2024, section 2.1); a mean can hide a long pause, so `gaps` lists every one (the
time between tokens of Agrawal et al. 2024, section 2).
"""

import math

from ..inputs import quantity


def ttft(served):
    """Seconds from the arrival of a request to its first token."""
    return served.times[0] - served.request.arrival


def tpot(served):
    """Mean seconds for each token after the first; 0 if there is none."""
    return (served.times[-1] - served.times[0]) / max(1, len(served.times) - 1)


def gaps(served):
    """The seconds between each token and the one before."""
    return [after - before for before, after in zip(served.times, served.times[1:])]


def mean(values):
    """The arithmetic mean; ValueError if there are no values."""
    values = list(values)
    if not values:
        raise ValueError("there are no values to take the mean of: give at least one")
    return sum(values) / len(values)


def percentile(values, share):
    """The smallest of the values that at least the part `share` of them does not exceed; share: 0 to 1."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("there are no values to take a percentile of: give at least one")
    if quantity("share", share) > 1:
        raise ValueError(f"share must be a part from 0 to 1, not {share}")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def attainment(run, first, later):
    """The part of the requests with a TTFT of at most `first` seconds and a TPOT of at most `later`."""
    quantity("first", first), quantity("later", later)
    met = [each for each in run.served if ttft(each) <= first and tpot(each) <= later]
    return len(met) / len(run.served)


def goodput(run, first, later):
    """Requests a second that met both objectives, from the first arrival to the last token.

    DistServe's goodput is the largest rate at which `attainment` is still, say, 90 % (Zhong et al. 2024).
    """
    seconds = run.iterations[-1].end - run.served[0].request.arrival
    return attainment(run, first, later) * len(run.served) / seconds


def most_pages(run):
    """The most pages that were held in any step."""
    return max(each.pages for each in run.iterations)


def preemptions(served):
    """How often a request lost its pages."""
    return sum(name == "preempted" for name, _ in served.phases)


def recomputed_tokens(run):
    """Tokens that were computed again because a request had lost its pages."""
    computed = sum(each.prompt_tokens for each in run.iterations)
    return computed - sum(each.request.prompt for each in run.served)
