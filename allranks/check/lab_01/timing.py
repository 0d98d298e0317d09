"""A time that no first call, no outlier and no impatient clock can spoil."""

import contextlib
import statistics
import time

import torch.distributed as dist

from allranks.check import exercise
from allranks.check.labs import drawn, is_written, on_ranks

FIRST, OFTEN, OUTLIER = 3.0, 0.02, 1.0  # seconds of the first call, of most, and added to a disturbed one
BARRIER, SET_BACK = 0.4, 0.7  # seconds that a barrier waits, and by which each reading of `time.time` is set
CLOCKS = ("perf_counter", "monotonic", "time")


class Clock:
    """A clock that advances only when work is finished: a busy machine cannot make a right answer wrong."""

    def __init__(self, rank, times):
        self.now, self.queued, self.calls, self.times, self.set_by = 100.0 * rank, 0.0, 0, times, 0.0

    def operation(self):
        counted = self.calls - 1
        self.queued += FIRST if self.calls == 0 else self.times[counted % len(self.times)]
        self.calls += 1

    def finish(self):
        self.now += self.queued
        self.queued = 0.0

    def wait(self):
        self.now += BARRIER

    def read(self):
        return self.now

    def read_and_set(self):
        """What `time.time` returns: somebody sets this clock again and again."""
        self.set_by += SET_BACK
        return self.now - self.set_by


@contextlib.contextmanager
def set_clocks(clock, names):
    """Replace the clocks of `time`, also where `names` (a notebook's variables) has imported one."""
    real = {name: getattr(time, name) for name in CLOCKS}
    fake = {name: clock.read_and_set if name == "time" else clock.read for name in CLOCKS}
    imported = {k: v for k, v in names.items() if any(v is one for one in real.values())}
    names.update({k: fake[next(n for n in CLOCKS if real[n] is v)] for k, v in imported.items()})
    vars(time).update(fake)
    barrier = dist.barrier
    dist.barrier = lambda *given, **options: (barrier(*given, **options), clock.wait())[0]
    try:
        yield
    finally:
        vars(time).update(real)
        names.update(imported)
        dist.barrier = barrier


def _times(rank, slowest, repeats):
    """Seconds of each counted call on `rank`: all differ, the first is the shortest, one has an outlier."""
    scale = OFTEN * (2.0 if rank == slowest else 1 + 0.2 * rank)
    times = [scale * (1 + 0.1 * number) for number in range(repeats)]
    times[1 + (rank % (repeats - 1))] += OUTLIER
    return times


@exercise
def seconds_of(answer):
    """`answer(operation, finish, repeats)` is how long one call takes, the same number on every rank."""
    is_written(answer)

    def on_rank(slowest, repeats):
        clock = Clock(dist.get_rank(), _times(dist.get_rank(), slowest, repeats))
        with set_clocks(clock, getattr(answer, "__globals__", {})):
            return answer(clock.operation, clock.finish, repeats), clock.calls

    for world_size, repeats in ((4, 5), (3, 6 + 2 * (drawn(0) % 3))):
        slowest = 1 + drawn(0) % (world_size - 1)
        returned = on_ranks(on_rank, slowest, repeats, world_size=world_size)
        every = [_times(rank, slowest, repeats) for rank in range(world_size)]
        for rank, (seconds, calls) in enumerate(returned):
            _is_call_of(seconds, calls, every[rank], rank)
        medians = [statistics.median(times) for times in every]
        times = [seconds for seconds, _ in returned]
        _is_slowest_median(times, medians, every, slowest)
    return f"Every rank has {max(medians):.2f} s, the slowest rank's median; one outlier changes nothing."


def _is_call_of(seconds, calls, times, rank):
    """Fail unless `seconds` can be the time of one of `calls` calls on `rank`, which took `times`."""
    repeats = len(times)
    assert isinstance(seconds, float), (
        f"Rank {rank} returned {seconds!r}, not a float: the seconds of one call."
    )
    assert calls == repeats + 1, (
        f"Rank {rank} called the operation {calls} times, for {repeats} repeats: the first call sets things "
        "up and should not count, so it takes one more than the repeats."
    )
    assert seconds > -SET_BACK / 2, (
        f"Rank {rank} returned {seconds:.3f} s: time.time can be set meanwhile. Use time.perf_counter."
    )
    assert seconds > 0, (
        f"Rank {rank} read the clock before the operation had finished: calling it only starts it."
    )


def _is_slowest_median(times, medians, every, slowest):
    """Fail unless every rank returned the median of rank `slowest`; `every` has all seconds of each rank."""
    right, ranks = max(medians), range(len(medians))
    per_call = statistics.median([max(of_ranks) for of_ranks in zip(*every)])
    unfinished = max(statistics.median([FIRST + one[0], *one[1:]]) for one in every)
    counted = max(statistics.median([FIRST, *one]) for one in every)
    mistakes = (
        ("the median of a call's slowest rank: take each rank's median first, so that one outlier on a rank "
         "does not count for all", per_call),
        ("a median to which the first call contributes: finish it before the first reading", unfinished),
        ("a median to which the first call contributes: it should not count", counted),
        ("what its fastest call took; a typical call is the median", max(min(one) for one in every)),
        ("the lower of two middle values; with an even number the median is their mean",
         max(statistics.median_low(one) for one in every)),
        ("the upper of two middle values; with an even number the median is their mean",
         max(statistics.median_high(one) for one in every)),
        ("a call's time and the wait at a barrier: start the clock after the barrier", right + BARRIER),
    )  # fmt: skip
    for rank, seconds in enumerate(times):
        for mistake, value in mistakes:
            assert abs(value - right) < 1e-4 or abs(seconds - value) > 1e-5, (
                f"Rank {rank} returned {seconds:.3f} s: {mistake}. Expected {right:.3f} s."
            )
        assert seconds < right + 0.9 * OUTLIER / len(every[0]), (
            f"Rank {rank} returned {seconds:.3f} s, but half of its calls took {medians[rank]:.3f} s or "
            "less: one outlier should not change the result."
        )
    assert max(abs(seconds - right) for seconds in times) < 1e-4, (
        f"Ranks {ranks[0]} to {ranks[-1]} returned {', '.join(f'{one:.3f}' for one in times)} s. "
        f"A collective takes as long as its slowest rank, here rank {slowest}: {right:.3f} s on every rank."
    )
