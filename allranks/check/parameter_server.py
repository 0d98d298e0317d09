"""The exercises of the chapter on parameter servers."""

import torch
import torch.distributed as dist

from allranks import launch, parameter_server
from allranks.check import exercise
from allranks.check.stubs import is_filled
from allranks.parallel.parameter_server import work

SECONDS = 20.0
RATE, TURNS = 0.5, [1, 2, 1, 3, 1, 2, 1, 3, 2, 2]
WORKERS, SPARE = 64, 16


def _gradient_at(weights, target):
    return weights - target


def _replay(divisor):
    """What one process computes: each gradient's rate divided by `divisor(its staleness)`."""
    weights = torch.zeros(4)
    pulled = {worker: weights.clone() for worker in TURNS}
    for worker, stale in zip(TURNS, parameter_server.staleness(TURNS), strict=True):
        weights = weights - RATE / divisor(stale) * (pulled[worker] - worker)
        pulled[worker] = weights
    return weights


@exercise
def aware(answer):
    """`answer(weights, rate, turns)` serves in turn, with a rate divided by the staleness, at least 1."""

    def on_rank():
        weights, rank = torch.zeros(4), dist.get_rank()
        if rank == 0:
            answer(weights, RATE, TURNS)
        else:
            work(weights, _gradient_at, [rank] * TURNS.count(rank))
        return weights

    found = launch(on_rank, world_size=4, timeout=SECONDS, backend="gloo")[0]
    hints = {
        "each gradient was applied at the full rate": lambda stale: 1,
        "a gradient that is one update late still counts in full": lambda stale: stale + 1,
        "a gradient that is not stale keeps the full rate": lambda stale: stale or float("inf"),
    }
    for hint, divisor in hints.items():
        assert not torch.allclose(found, _replay(divisor), atol=1e-5), (
            f"The weights are not right yet: {hint}."
        )
    right = _replay(lambda stale: max(1, stale))
    assert torch.allclose(found, right, atol=1e-5), (
        f"The weights end at {found[0]:.3f}; in one process they end at {right[0]:.3f}."
    )
    return "The server reduces the rate of each gradient by how late it is."


@exercise
def busiest(answer):
    """`answer`: what the busiest rank sends, in multiples of the weights, in three layouts."""
    only_spare = max(1, WORKERS / SPARE)
    every_worker = 2 * (WORKERS - 1) / WORKERS
    mixed = WORKERS * parameter_server.best_slices(1, WORKERS, SPARE)[1]
    is_filled(answer, "three numbers")
    assert len(answer) == 3, f"Expected three numbers, got {len(answer)}."
    names = ("spare machines only", "every worker", "both")
    for name, given, right in zip(names, answer, (only_spare, every_worker, mixed), strict=True):
        assert abs(given - right) < 0.005, (
            f"{name}: {given:g} is not right: which machine sends the most, and what does it send?"
        )
    return (
        f"{only_spare:.0f}, {every_worker:.2f} and {mixed:.2f}: spare machines pay off in addition to the "
        "workers."
    )
