"""How long does a request wait for its first token, without a simulation?

The model: prompts of one length arrive as a Poisson process and are computed one after another, in the order
of arrival: an M/D/1 queue. `rate` is in requests a second, `seconds` those of a prefill on one device. The
three answers are those of DistServe (Zhong et al. 2024, section 3.1): on one device; with the layers on
several stages, which work on different prompts; and with tensor parallelism, which makes each prefill
shorter.
"""

from ..inputs import quantity, whole


def mean_wait(rate, seconds):
    """Mean seconds in the queue of M/D/1, RD²/2(1−RD): `rate` R, each served for D `seconds`."""
    quantity("rate", rate), quantity("seconds", seconds, positive=True)
    if rate * seconds >= 1:
        raise ValueError(
            f"{rate} requests a second of {seconds} s each are more than a server can do, so the queue grows "
            "without end: lower the rate, or make each request shorter"
        )
    return rate * seconds**2 / (2 * (1 - rate * seconds))


def prefill(rate, seconds):
    """Mean seconds to the first token on one device: D + RD²/2(1−RD)."""
    return seconds + mean_wait(rate, seconds)


def pipelined_prefill(rate, seconds, stages=2):
    """The same with the layers on `stages` stages: D + the wait for D/stages.

    With two stages that is D + RD²/4(2−RD).
    """
    return seconds + mean_wait(rate, seconds / whole("stages", stages))


def tensor_parallel_prefill(rate, seconds, speed_up):
    """The same where tensor parallelism makes a prefill `speed_up` K times as fast: D/K + RD²/2K(K−RD)."""
    return prefill(rate, seconds / quantity("speed_up", speed_up, positive=True))
