"""When do requests really arrive? Ten minutes of a code-completion service, second by second.

Derived from the Azure LLM inference trace 2023 (github.com/Azure/AzurePublicDataset, CC BY 4.0; Patel et al.
2024, section 3): how many requests arrived in each of its first 600 seconds, and every fifth percentile of
the lengths of all its 8,819. Within its second each request arrives at random, and its lengths are drawn from
the percentiles, independently of each other; `benchmarks/arrivals.py` shows how much that changes.
"""

from ..inputs import whole
from .arrivals import Request, uniforms

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
CODE_ARRIVALS = (
    "750000000000000000000000000005552a454353000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000090008c007d00eqlns"
    "b5655800000003bk402cacs5rc5lc5gforqw1000000000000000000000000d9998000b3666g7837201739100000007968454"
    "b666738866635000000000000000000000005743764355000000000000000000000000000000000000006900000000000000"
    "0000000000000000000000966652800000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000007a007c002000000000000000000000000000000005h6706bb7045suiFBByi2b6euhhqv00000000000000"
)
CODE_PROMPTS = (
    3,
    75,
    147,
    232,
    386,
    578,
    770,
    938,
    1075,
    1261,
    1469,
    1690,
    1909,
    2164,
    2433,
    2745,
    3192,
    3919,
    5186,
    7302,
    7437,
)
CODE_OUTPUTS = (6, 6, 7, 7, 8, 9, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 29, 39, 55, 90, 1899)


def code_arrivals():
    """How many requests arrive in each second: a list of 600 whole numbers."""
    return [DIGITS.index(digit) for digit in CODE_ARRIVALS]


def code_requests(seed=1):
    """A list of `Request`: 1,482 in ten minutes, the times and lengths drawn from the trace as said above."""
    drawn = uniforms(whole("seed", seed, 0), 4)
    times = sorted(second + next(drawn) for second, count in enumerate(code_arrivals()) for _ in range(count))
    return [
        Request(time, drawn_length(CODE_PROMPTS, drawn), drawn_length(CODE_OUTPUTS, drawn)) for time in times
    ]


def drawn_length(percentiles, drawn):
    """A whole number between two neighbours of a tuple of evenly spaced percentiles."""
    place = next(drawn) * (len(percentiles) - 1)
    low, high = percentiles[int(place)], percentiles[int(place) + 1]
    return low + int((place - int(place)) * (high - low + 1))
