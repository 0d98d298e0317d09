"""What failures and checkpoints cost: formulas agree with each other, with a simulation, and with counts."""

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import failures

HOUR = 3600.0
writes = st.floats(1, 600)
means = st.floats(1 * HOUR, 500 * HOUR)


@given(writes, means)
def test_young_s_interval_is_the_least_of_the_first_order_share(write, mean):
    best = failures.best_interval(write, mean)
    least = failures.lost_share(best, write, mean)
    assert least == pytest.approx(math.sqrt(2 * write / mean))
    assert all(failures.lost_share(best * factor, write, mean) > least for factor in (0.8, 1.25))


@given(writes, means, st.floats(0, 1200))
def test_the_best_interval_is_where_the_exact_goodput_is_largest(write, mean, restart):
    best = failures.best(write, mean)
    most = failures.goodput(best, write, mean, restart)
    assert all(failures.goodput(best * factor, write, mean, restart) < most for factor in (0.9, 1.1))


@pytest.mark.parametrize("write", [1, 10, 100])
def test_where_all_is_short_beside_the_mean_the_first_order_is_enough(write):
    mean = 1e6 * write
    assert failures.best(write, mean) == pytest.approx(failures.best_interval(write, mean), rel=1e-3)
    lost = failures.lost_share(1500 * write, write, mean, 30 * write)
    assert 1 - failures.goodput(1500 * write, write, mean, 30 * write) == pytest.approx(lost, rel=2e-3)


@pytest.mark.parametrize(
    "interval, write, restart", [(600, 30, 0), (600, 30, 300), (1800, 120, 600), (7200, 10, 60)]
)
def test_a_simulated_run_has_the_exact_goodput(interval, write, restart):
    mean, work = 3 * HOUR, 1e5 * HOUR
    run = failures.simulate(work, interval, write, mean, restart)
    assert work / run.seconds == pytest.approx(failures.goodput(interval, write, mean, restart), rel=0.01)
    assert run.seconds / run.failures == pytest.approx(mean, rel=0.02)


@given(st.floats(60, 20_000), writes, means, st.floats(0, 5000), st.floats(0, 2000))
def test_parts_add_up_to_all_of_the_time(interval, write, mean, restart, detect):
    parts = failures.parts(interval, write, mean, restart, detect)
    assert sum(parts) == pytest.approx(1) and min(parts) >= 0
    assert parts.trains == failures.goodput(interval, write, mean, restart + detect)
    together = failures.parts(interval, write, mean, restart + detect)
    assert parts.detects + parts.restarts == pytest.approx(together.restarts)


def test_a_simulated_run_repeats_and_writes_what_the_parts_say():
    mean, work = 3 * HOUR, 1e5 * HOUR
    run = failures.simulate(work, 1800, 0, mean, 600)
    parts = failures.parts(1800, 0, mean, 500, 100)
    assert (run.trained - work) / run.seconds == pytest.approx(parts.repeats, rel=0.02)
    waited = run.seconds - run.trained  # nothing is written
    assert waited / run.seconds == pytest.approx(parts.detects + parts.restarts, rel=0.02)
    written = failures.parts(1800, 60, mean)
    assert written.writes / written.trains == pytest.approx(60 / 1800)


@given(st.floats(60, 20_000), writes, means, st.floats(0.01, 0.99))
def test_the_restart_for_a_share_leads_to_that_share(interval, write, mean, part):
    share = part * failures.goodput(interval, write, mean)
    restart = failures.restart_for(share, interval, write, mean)
    assert failures.goodput(interval, write, mean, restart) == pytest.approx(share)


@given(st.integers(0, 10_000))
def test_without_a_failure_a_run_takes_its_work_and_its_checkpoints(seed):
    run = failures.simulate(1000, 300, 10, 1e12, 60, seed)
    assert run == (1040, 0, 1000)


@given(st.integers(0, 10_000), st.floats(100, 3000))
def test_what_is_trained_is_the_work_and_what_is_repeated(seed, interval):
    run = failures.simulate(20_000, interval, 20, HOUR, 100, seed)
    assert 0 <= run.trained - 20_000 <= run.failures * interval + 1e-6
    checkpoints = math.ceil(20_000 / interval - 1e-9)
    least = run.trained + 20 * checkpoints + 100 * (run.failures > 0)
    assert run.seconds >= least - 1e-6


def test_the_published_counts_make_the_published_rates():
    assert failures.RATES["Llama 3 405B"] == pytest.approx(3.79, abs=0.005)
    assert failures.RATES["OPT-175B"] == pytest.approx(14.1, abs=0.05)
    assert failures.between(2048, failures.RATES["Llama 3 405B"]) == pytest.approx(54 * failures.DAY / 419)


def test_twice_the_machines_fail_twice_as_often_and_lose_more_than_half_as_much_again():
    one, two = (failures.between(machines, 6.5) for machines in (1024, 2048))
    assert one == 2 * two
    lost = [failures.lost_share(failures.best_interval(30, mean), 30, mean) for mean in (one, two)]
    assert lost[1] / lost[0] == pytest.approx(math.sqrt(2))


def test_the_picture_of_the_chapter_has_the_shares_that_are_lost():
    llama = failures.between(2048, failures.RATES["Llama 3 405B"])
    lost = [100 * (1 - failures.goodput(60 * minutes, 30, llama)) for minutes in (1, 4, 45, 120, 360)]
    text = (Path(__file__).parents[2] / "notebooks/practice/failures.ipynb").read_text(encoding="utf-8")
    words = next(cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")["metadata"]
    printed = re.findall(r"(\d+) %", words["mystnb"]["image"]["alt"])
    assert printed == [f"{share:.0f}" for share in lost]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: failures.between(0, 6.5), "machines must be a whole number of at least 1, not 0"),
        (lambda: failures.best_interval(0, 100), "write must be a number above 0, not 0"),
        (lambda: failures.goodput(0, 1, 1), "interval must be a number above 0, not 0"),
        (lambda: failures.goodput(1, 1, 1, -1), "restart must be a number of at least 0, not -1"),
        (lambda: failures.parts(1, 1, 1, 1, -1), "detect must be a number of at least 0, not -1"),
        (lambda: failures.restart_for(0, 1, 1, 1), "share must be a number above 0, not 0"),
        (lambda: failures.restart_for(0.9, 1, 1, 1), "share must be at most 0.157, the goodput without"),
        (lambda: failures.simulate(100, 100, 1, 10), "training gets less than 0.001 of the time"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_run_that_never_reaches_its_first_checkpoint_has_no_goodput():
    assert failures.goodput(1e6, 1, 1) == 0
