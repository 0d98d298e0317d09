"""When do requests arrive, and how long are they? Drawn from seeds, the same in every Python.

The model: gaps between arrivals are independent. Exponential ones make a Poisson process; those of a gamma
distribution have the same mean and another coefficient of variation, above 1 for traffic in bursts. Times are
rounded to whole nanoseconds, so that the last digit of a logarithm does not matter.
"""

import math
from collections import namedtuple

from ..inputs import quantity, whole

Request = namedtuple("Request", "arrival prompt output")
"""A request: the second when it arrives, the tokens of its prompt and those of its answer."""


def uniforms(seed, stream):
    """Numbers between 0 and 1, without end; each `stream` of a seed has its own.

    SplitMix (Steele, Lea & Flood 2014) in 32 bits: a counter in steps of 2^32 over the golden ratio, mixed.
    """
    x = mixed((mixed(whole("seed", seed, 0) % 2**32) + stream) % 2**32)
    while True:
        x = (x + 0x9E3779B9) % 2**32
        yield (mixed(x) + 0.5) / 2**32


def mixed(x):
    """A whole number below 2^32 with every bit of `x` in every bit: the last step of MurmurHash3."""
    x = (x ^ x >> 16) * 0x85EBCA6B % 2**32
    x = (x ^ x >> 13) * 0xC2B2AE35 % 2**32
    return x ^ x >> 16


def evenly(rate, count):
    """The seconds of `count` arrivals, 1/`rate` apart."""
    quantity("rate", rate, positive=True)
    return [(number + 1) / rate for number in range(whole("count", count))]


def poisson(rate, count, seed=1):
    """The seconds of `count` arrivals of a Poisson process with `rate` arrivals a second."""
    quantity("rate", rate, positive=True)
    drawn = uniforms(seed, 0)
    return added(-math.log(next(drawn)) / rate for _ in range(whole("count", count)))


def gamma(rate, count, variation, seed=1):
    """The seconds of `count` arrivals with gaps of a gamma distribution, `rate` a second on average.

    variation: standard deviation of a gap over its mean; 1 is a Poisson process again, from other draws.
    The method is Marsaglia and Tsang's (2000), for shapes below 1 with the power that they give.
    """
    quantity("rate", rate, positive=True), quantity("variation", variation, positive=True)
    shape, drawn = 1 / variation**2, uniforms(seed, 1)
    return added(gamma_variate(shape, drawn) / (shape * rate) for _ in range(whole("count", count)))


def gamma_variate(shape, drawn):
    """One number of the gamma distribution with this shape and mean, from a stream of uniform ones."""
    if shape < 1:
        return gamma_variate(shape + 1, drawn) * next(drawn) ** (1 / shape)
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        normal = math.sqrt(-2 * math.log(next(drawn))) * math.cos(2 * math.pi * next(drawn))  # Box–Muller
        v = (1 + c * normal) ** 3
        if v > 0 and math.log(next(drawn)) < 0.5 * normal**2 + d - d * v + d * math.log(v):
            return d * v


def added(gaps):
    """The times after each of these gaps, in seconds, each gap in whole nanoseconds."""
    now, times = 0, []
    for gap in gaps:
        now += int(gap * 1e9 + 0.5)
        times.append(now / 1e9)
    return times


def lengths(low, high, count, seed=1):
    """`count` whole numbers from `low` to `high`, all equally likely."""
    whole("low", low), whole("high", high, low)
    drawn = uniforms(seed, 2 + (31 * low + high) % 2**20)  # another stream for other bounds
    return [low + int(next(drawn) * (high - low + 1)) for _ in range(whole("count", count))]


def requests(arrivals, prompts, outputs):
    """A list of `Request`: one for each arrival; prompts and outputs are lists, or one number for all."""
    arrivals = list(arrivals)
    sizes = [
        for_each(name, given, len(arrivals)) for name, given in (("prompts", prompts), ("outputs", outputs))
    ]
    return [Request(*each) for each in zip(arrivals, *sizes)]


def for_each(name, given, count):
    """A list of `count` numbers: the list `given`, or the one number `given` again and again."""
    if not isinstance(given, (list, tuple)):
        return [whole(name, given)] * count
    if len(given) != count:
        raise ValueError(f"{name} must be one number, or one for each of {count} arrivals, not {len(given)}")
    return list(given)
