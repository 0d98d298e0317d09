"""The exercises of the chapter Collectives, measured."""

from allranks import collectives
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_number


def _near(answer, expected):
    return abs(answer / expected - 1) < 0.01


@exercise
def fit(answer):
    """`answer`: α in seconds and 1/β in bytes per second, of 1 MB in 0.12 ms and 10 MB in 0.93 ms."""
    assert isinstance(answer, tuple | list) and len(answer) == 2, "Two numbers: a latency and a bandwidth."
    for part in answer:
        is_filled(part, "numbers")
    latency, bandwidth = answer
    assert not _near(bandwidth, 1e6 / 0.12e-3), "That leaves out the latency: compare the two messages first."
    assert not _near(bandwidth, 10e6 / 0.93e-3), "0.93 ms for 10 MB includes the latency; take it out."
    assert not _near(bandwidth, 0.81e-3 / 9e6), "That is β; give its inverse."
    assert _near(bandwidth, 9e6 / 0.81e-3), (
        f"{bandwidth:.3g} bytes per second is not right: how long do nine more megabytes take?"
    )
    assert not _near(latency, 30), "Give the latency in seconds, not in microseconds."
    assert _near(latency, 30e-6), (
        f"{latency:.3g} s is not right: subtract the time of the bytes from the time of a message."
    )
    return "α = 30 µs and 1/β = 11.1 GB/s: α/β is 333 kB."


@exercise
def bus(answer):
    """`answer`: bytes per second that a benchmark prints as bus bandwidth: 64 MB, 16 ranks, 2 ms."""
    is_number(answer)
    expected = collectives.bus_bandwidth("all_reduce", 64e6, 16, 2e-3)
    assert not _near(answer, 64e6 / 2e-3), "That is the algorithm bandwidth: how much does a rank send?"
    assert not _near(answer, expected / 2), (
        "That is the factor of an all-gather; an all-reduce goes around twice."
    )
    assert not _near(answer * 1e9, expected), "Give the answer in bytes, not in gigabytes."
    assert _near(answer, expected), f"{answer:.3g} is not right: how many bytes does a rank send in the 2 ms?"
    return f"{expected / 1e9:.0f} GB/s, which can be compared with what a link can do."
