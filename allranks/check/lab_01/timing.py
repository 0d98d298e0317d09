"""A time that no first call, no outlier and no impatient clock can spoil."""

import contextlib
import time

import torch.distributed as dist

from allranks.check import exercise
from allranks.check.labs import is_written, on_ranks

FIRST, OFTEN, OUTLIER = 3.0, 0.02, 1.0  # seconds of the first call, of most, and added to a disturbed one
CLOCKS = ("perf_counter", "monotonic", "time")


class _Clock:
    """A clock that advances only when work is finished: a busy machine cannot make a right answer wrong."""

    def __init__(self, rank):
        self.now, self.queued, self.calls, self.rank = 100.0 * rank, 0.0, 0, rank

    def operation(self):
        self.queued += FIRST if self.calls == 0 else OFTEN * (1 + self.rank)
        self.queued += OUTLIER if self.calls == 3 else 0.0
        self.calls += 1

    def finish(self):
        self.now += self.queued
        self.queued = 0.0


@contextlib.contextmanager
def _set(clock, names):
    """Replace the clocks of `time`, also where `names` (a notebook's variables) has imported one."""
    real = {name: getattr(time, name) for name in CLOCKS}
    imported = {k: v for k, v in names.items() if any(v is one for one in real.values())}
    names.update(dict.fromkeys(imported, lambda: clock.now))
    for name in CLOCKS:
        setattr(time, name, lambda: clock.now)
    try:
        yield
    finally:
        vars(time).update(real)
        names.update(imported)


@exercise
def seconds_of(answer):
    """`answer(operation, finish, repeats)` is how long one call takes, the same number on every rank."""
    is_written(answer)

    def on_rank(repeats):
        clock = _Clock(dist.get_rank())
        with _set(clock, getattr(answer, "__globals__", {})):
            return answer(clock.operation, clock.finish, repeats), clock.calls

    for world_size, repeats in ((4, 5), (2, 9)):
        results = on_ranks(on_rank, repeats, world_size=world_size)
        medians = [OFTEN * (1 + rank) for rank in range(world_size)]
        for rank, (seconds, calls) in enumerate(results):
            assert isinstance(seconds, float), (
                f"Rank {rank} returned {seconds!r}, not a float: the seconds of one call."
            )
            assert calls > repeats, (
                f"Rank {rank} called the operation {calls} times, for {repeats} repeats: "
                "the first call sets things up, and should not count."
            )
            assert seconds > 0, (
                f"Rank {rank} read the clock before the operation had finished: calling it only starts it."
            )
            assert seconds < OFTEN * world_size + 0.9 * OUTLIER / repeats, (
                f"Rank {rank} returned {seconds:.3f} s, but most calls took {medians[rank]:.3f} s: "
                "one outlier should not change the result."
            )
        times = [seconds for seconds, _ in results]
        assert max(abs(seconds - max(medians)) for seconds in times) < 1e-4, (
            f"Ranks 0 to {world_size - 1} returned {', '.join(f'{one:.3f}' for one in times)} s. "
            f"A collective takes as long as its slowest rank: {max(medians):.3f} s on every rank."
        )
    return f"{max(medians):.2f} s, the slowest rank's median, on every rank; one outlier changes nothing."
