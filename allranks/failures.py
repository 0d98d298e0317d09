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
LONGEST = 700  # times the mean without a failure: e^−700 is practically never
LEAST = 0.001  # of the time trains, or a run is not simulated

Run = namedtuple("Run", "failures machines days")
"""Failures that were counted in a run: how many, on how many machines, in how many days."""

# Llama 3: section 3.3.4, unexpected interruptions. OPT: section 2.5, 35 restarts by hand and about 70 others.
# What is printed of these runs, here and below, is in the ledger of claims.
RUNS = {"Llama 3 405B": Run(419, 2048, 54), "OPT-175B": Run(105, 124, 60)}

# Failures in a thousand machine-days: those runs, and Meta's two research clusters (Kokolis et al. 2024).
RATES = {"RSC-2": 2.34, "RSC-1": 6.50}
RATES.update({name: 1000 * run.failures / (run.machines * run.days) for name, run in RUNS.items()})

Reported = namedtuple("Reported", "machines rate share interval kind")
"""The goodput that a run reported: machines, their failures in a thousand machine-days, the share, seconds
between checkpoints; `kind` is "about", "at least" or "projected". None stands for what was not printed."""

# OPT: 33 days of training in the 56 from November 11 to January 6 (its logbook, first and last update).
# RSC-1: jobs of up to 4096 GPUs. MegaScale: more than 10,000 GPUs. RSC-2: 100,000 GPUs with its rate.
REPORTED = {
    "OPT-175B": Reported(124, RATES["OPT-175B"], 33 / 56, None, "about"),
    "RSC-1": Reported(512, RATES["RSC-1"], 0.9, 3600, "at least"),
    "MegaScale": Reported(1250, None, 0.9, None, "at least"),
    "Llama 3 405B": Reported(2048, RATES["Llama 3 405B"], 0.9, None, "at least"),
    "RSC-2": Reported(12_500, RATES["RSC-2"], 0.9, 120, "projected"),
}

Parts = namedtuple("Parts", "trains writes repeats detects restarts")
"""What the time of a run goes into, as shares of it that add up to one."""

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
    if (restart + interval + write) / mean > LONGEST:
        return 0.0  # such a run never reaches its first checkpoint
    repeated = math.exp(restart / mean) * (math.exp((interval + write) / mean) - 1)
    return interval / mean / repeated


def parts(interval, write, mean, restart=0, detect=0):
    """The `Parts` of a long run, in which a failure goes unnoticed for `detect` seconds before the restart.

    Writing is of checkpoints that were completed. A second failure ends detection or a restart early, so that
    a wait of R takes 1 − e^(−R/M) of the time.
    """
    quantity("detect", detect)
    trains = goodput(interval, write, mean, restart + detect)
    writes = trains * write / interval
    detects = 1 - math.exp(-detect / mean)
    restarts = math.exp(-detect / mean) - math.exp(-(detect + restart) / mean)
    return Parts(trains, writes, max(0.0, 1 - trains - writes - detects - restarts), detects, restarts)


def restart_for(share, interval, write, mean):
    """The seconds that a failure must cost, beside repeated steps, if the goodput is to be `share`.

    Raises ValueError if the goodput is less even with none.
    """
    quantity("share", share, positive=True)
    most = goodput(interval, write, mean)
    if share > most:
        raise ValueError(f"share must be at most {most:.3g}, the goodput without restarts, not {share:.3g}")
    return mean * math.log(most / share)


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
        raise ValueError(
            f"with a mean of {mean:,.5g} s, training gets less than {LEAST} of the time: save more often"
        )
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
