"""An all-reduce by size on the student's machine: is it measured, fitted, drawn and read?"""

import collections
import statistics

import torch
import torch.distributed as dist

from allranks.check import exercise, measured
from allranks.check.lab_01.timing import BARRIER, FIRST, OFTEN, Clock, set_clocks
from allranks.check.labs import drawn, is_written, on_ranks
from allranks.check.plotted import plain

SIZES = (4_000, 64_000, 1_000_000, 16_000_000)
X, Y, STAMP = "message (B)", "time (s)", "at (s)"
TASK = (
    "What do the smallest and the largest message cost? Where does the fit miss? How far apart are repeats?"
)


@exercise
def all_reduce_measured(measure, measurements, alpha_beta, plot, reflection):
    """The seconds of an all-reduce by size: measured on ranks, fitted, and reported."""
    is_written(measure, measurements, alpha_beta, plot, reflection)
    _is_measured(measure)
    _is_fitted(alpha_beta)

    def derived(rows):
        alpha, beta = on_ranks(lambda: alpha_beta(rows), world_size=1)[0]
        rates = [row[X] / seconds for row in rows for seconds in row[Y]]
        rates += [row[X] / statistics.median(row[Y]) for row in rows]
        return alpha, beta, 1 / beta, alpha / beta, *(alpha + beta * row[X] for row in rows), *rates

    return measured.by_form(measurements, plot, reflection, x=X, y=Y, xs=SIZES, task=TASK, derived=derived)


def _seconds(rank, size, number, ranks):
    """What the counted call `number` takes on `rank`; each rank is the slowest one now and then."""
    usual = (OFTEN + 1e-6 * size) * (1 + 0.05 * (3 * number % 5))
    return usual * (2.0 if (number + size // 4) % ranks == rank else 1 + 0.2 * rank)


def _is_measured(measure):
    """Fail unless `measure(sizes, repeats)` has the slowest rank's times of messages of that many bytes."""
    ranks, repeats = 3, 5 + drawn(0) % 3
    sizes = [4 * (1000 + drawn(0) % 97), 4 * (7000 + drawn(0) % 89), 4 * (30_000 + drawn(0) % 83)]

    def on_rank():
        rank, real = dist.get_rank(), dist.all_reduce
        clock, calls, sent = Clock(rank, []), collections.Counter(), set()

        def all_reduce(tensor, *args, **options):
            size = tensor.numel() * tensor.element_size()
            result = real(tensor, *args, **options)
            if size in sizes and tensor.dtype == torch.float32:
                clock.now += _seconds(rank, size, calls[size] - 1, ranks) if calls[size] else FIRST
                calls[size] += 1
            sent.add(size)
            return result

        dist.all_reduce = all_reduce
        try:
            with set_clocks(clock, getattr(measure, "__globals__", {})):
                return plain((measure(list(sizes), repeats), sorted(sent))), dict(calls)
        finally:
            dist.all_reduce = real

    for rank, ((rows, sent), calls) in enumerate(on_ranks(on_rank, world_size=ranks)):
        for size in sizes:
            assert size in calls, (
                f"No message of {size} bytes in fp32 was summed by measure; it sent {sent or 'no'} bytes."
            )
            assert calls[size] == repeats + 1, (
                f"measure summed the message of {size} bytes {calls[size]} times for {repeats} repeats; "
                "expected one more than the repeats, since the first call does not count."
            )
        assert isinstance(rows, list) and [isinstance(r, dict) and r.get(X) for r in rows] == sizes, (
            f"On rank {rank} measure returned {str(rows)[:50]}; expected a row for each size, with {X!r}."
        )
        stamps = [row.get(STAMP) for row in rows]
        assert all(type(stamp) is float for stamp in stamps) and sorted(set(stamps)) == stamps, (
            f"{STAMP!r} is {stamps} on rank {rank}; expected what the clock says when each row is finished."
        )
        for row in rows:
            every = [[_seconds(r, row[X], k, ranks) for k in range(repeats)] for r in range(ranks)]
            _are_slowest(row.get(Y), every, rank, row[X])


def _are_slowest(times, every, rank, size):
    right = [max(of_call) for of_call in zip(*every, strict=True)]
    where = f"The times of {size} bytes on rank {rank}"
    assert isinstance(times, list) and len(times) == len(right) and all(type(t) is float for t in times), (
        f"{where} are {str(times)[:50]}; expected a list of {len(right)} floats."
    )
    shown = f"{where} begin with {times[0]:.4g}, {times[1]:.4g} s; expected {right[0]:.4g}, {right[1]:.4g} s"
    assert max(times) < FIRST, f"{shown}: the first call, which sets things up, should not count."
    assert abs(times[0] - right[0] - BARRIER) > 1e-3, f"{shown}: start the clock after the barrier."
    close = [abs(a - b) <= 1e-4 * b for a, b in zip(times, right, strict=True)]
    assert all(close), f"{shown}: each is the time of the slowest rank in that call, in seconds."


def _is_fitted(alpha_beta):
    """Fail unless `alpha_beta(rows)` finds both numbers where all medians are on a line."""
    noise = (1.5, 1.0, 0.9, 1.02, 0.97)
    for sizes, alpha, beta in (
        ((1_000, 50_000, 2_000_000, 9_000_000), 3.1e-4 + 1e-6 * (drawn(0) % 50), 1.7e-9),
        ((700_000, 8_000, 30_000_000), 2.3e-5, 4.1e-11),
    ):
        rows = [
            {X: n, Y: [(alpha + beta * n) * one for one in noise], STAMP: 1.0 + k}
            for k, n in enumerate(sizes)
        ]
        found = on_ranks(lambda rows=rows: plain(alpha_beta(rows)), world_size=1)[0]
        assert isinstance(found, list) and len(found) == 2 and all(type(v) in (int, float) for v in found), (
            f"alpha_beta returned {str(found)[:40]}; expected two numbers, α in s and β in s per byte."
        )
        shown = f"alpha_beta returned {found[0]:.3g}, {found[1]:.3g}; expected {alpha:.3g} s, {beta:.3g} s/B"
        assert not _is_near(found, (beta, alpha)), f"{shown}: α comes first."
        assert not _is_near(found, (alpha, 1 / beta)), f"{shown}: β is seconds per byte, not its inverse."
        for of in (statistics.fmean, min, max):
            assert not _is_near(found, (alpha * of(noise), beta * of(noise))), (
                f"{shown}: take the median of each row's repeats, which no outlier moves."
            )
        assert _is_near(found, (alpha, beta)), f"{shown}: the medians are on the line α + βn exactly."


def _is_near(found, right):
    return all(abs(a - b) <= 0.01 * abs(b) for a, b in zip(found, right, strict=True))
