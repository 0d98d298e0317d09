"""How often should a run save? What failures and checkpoints cost, as a share of the time of all ranks.

The model: failures come independently of each other at one rate, so the time to the next one is exponential
with mean M. A run trains for an interval τ, writes a checkpoint in c, and goes on. A failure costs a restart
R and all that was trained since the last checkpoint (Young 1974; Daly 2006). All times are in seconds.
"""

import math
from collections import namedtuple

from .inference.arrivals import uniforms
from .inputs import quantity, whole

DAY = 86_400
LEAST = 0.001  # of the time trains, or a run is not simulated

Run = namedtuple("Run", "failures machines days")
"""Failures that were counted in a run: how many, on how many machines, in how many days."""

# Llama 3: section 3.3.4, unexpected interruptions. OPT: section 2.5, 35 restarts by hand and about 70 others.
RUNS = {"Llama 3 405B": Run(419, 2048, 54), "OPT-175B": Run(105, 124, 60)}

# Failures in a thousand machine-days: those runs, and Meta's two research clusters (Kokolis et al. 2024).
RATES = {"RSC-2": 2.34, "RSC-1": 6.50}
RATES.update({name: 1000 * run.failures / (run.machines * run.days) for name, run in RUNS.items()})

Outcome = namedtuple("Outcome", "seconds failures trained")
"""A run that was simulated: its seconds, its failures, and the seconds trained, repeated ones included."""


def between(machines, rate):
    """Seconds between two failures on `machines`, with `rate` failures in a thousand machine-days."""
    whole("machines", machines), quantity("rate", rate, positive=True)
    return 1000 * DAY / (machines * rate)


def lost_share(interval, write, mean, restart=0):
    """The share of a run that is lost, to first order: c/τ + (τ/2 + R)/M.

    interval: seconds of training between two checkpoints; write: seconds that one takes; mean: seconds
    between two failures; restart: seconds until training goes on. Right where all are short beside `mean`.
    """
    _checked(interval, write, mean, restart)
    return write / interval + (interval / 2 + restart) / mean


def best_interval(write, mean):
    """The interval at which the first-order share is least: √(2cM) (Young 1974)."""
    quantity("write", write, positive=True), quantity("mean", mean, positive=True)
    return math.sqrt(2 * write * mean)


def goodput(interval, write, mean, restart=0):
    """The share of a long run that trains what is kept: τ/M / (e^(R/M) (e^((τ+c)/M) − 1)) (Daly 2006).

    A failure may also come while a checkpoint is written or the run starts again.
    """
    _checked(interval, write, mean, restart)
    try:
        repeated = math.exp(restart / mean) * (math.exp((interval + write) / mean) - 1)
    except OverflowError:
        return 0.0  # such a run never reaches its first checkpoint
    return interval / mean / repeated


def best(write, mean):
    """The interval at which the goodput is largest: x = τ/M solves 1 − x = e^−(x + c/M), by bisection."""
    quantity("write", write, positive=True), quantity("mean", mean, positive=True)
    low, high = 0.0, 1.0
    for _ in range(60):
        x = (low + high) / 2
        low, high = (x, high) if 1 - x > math.exp(-(x + write / mean)) else (low, x)
    return low * mean


def simulate(work, interval, write, mean, restart=0, seed=1):
    """One run that trains `work` seconds, event by event: an `Outcome`. It ends when all is saved."""
    quantity("work", work, positive=True)
    if goodput(interval, write, mean, restart) < LEAST:
        raise ValueError(f"with mean = {mean} less than {LEAST} of the time would train: save more often")
    drawn = uniforms(seed, 0)
    now = saved = trained = 0.0
    failures, next_failure = 0, _gap(drawn, mean)
    while saved < work:
        part = min(interval, work - saved)
        if now + part + write <= next_failure:
            now, saved, trained = now + part + write, saved + part, trained + part
            continue
        trained += min(part, next_failure - now)
        failures, now, next_failure = failures + 1, next_failure, next_failure + _gap(drawn, mean)
        while next_failure < now + restart:  # another one before training goes on
            failures, now, next_failure = failures + 1, next_failure, next_failure + _gap(drawn, mean)
        now += restart
    return Outcome(now, failures, trained)


def _gap(drawn, mean):
    return -mean * math.log(next(drawn))


def _checked(interval, write, mean, restart):
    quantity("interval", interval, positive=True), quantity("write", write)
    quantity("mean", mean, positive=True), quantity("restart", restart)
