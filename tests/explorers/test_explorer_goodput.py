"""The picture of goodput says what the arithmetic says, and what the ledger says that runs reported."""

import re

import pytest

from allranks import claims, failures
from allranks.explorers import NARROW, WIDE
from allranks.explorers import goodput as explorer
from allranks.explorers.frame import controls
from allranks.explorers.frame.words import lasting, percent

SETTINGS = [
    {},
    {"rate": "OPT-175B", "nodes": 128, "restart": 28_800},
    {"save": "own", "interval": 3600, "nodes": 512, "rate": "RSC-1", "against": "interval"},
    {"save": "young", "write": 600, "detect": 600},
    {"save": "own", "interval": 86_400, "rate": "100", "nodes": 16_384},
    {"nodes": 1, "rate": "0.5", "write": 1, "against": "interval"},
]
ALL = pytest.mark.parametrize("given", SETTINGS, ids=str)


def draw(width=WIDE, **given):
    """What the explorer shows."""
    return explorer.draw(width, **controls.settings(explorer.CONTROLS, given))


def computed(given):
    """All settings, the mean time between failures, the interval and the parts, from the arithmetic alone."""
    own = controls.settings(explorer.CONTROLS, given)
    rate = failures.RATES.get(own["rate"]) or float(own["rate"])
    mean = failures.between(own["nodes"], rate)
    rule = {"best": failures.best, "young": failures.best_interval}.get(own["save"])
    interval = rule(own["write"], mean) if rule else own["interval"]
    return own, mean, interval, failures.parts(interval, own["write"], mean, own["restart"], own["detect"])


@ALL
def test_the_words_are_the_arithmetic(given):
    words, (own, mean, interval, parts) = draw(**given)["text"], computed(given)
    assert f"failures in a thousand node-days: one every {lasting(mean)}." in words
    trains = f"{percent(parts.trains)} of the time is spent training."
    assert f"With a checkpoint every {lasting(interval)}, {trains}" in words
    assert f"Writing takes {percent(parts.writes)}, redoing {percent(parts.repeats)}," in words
    assert f"noticing {percent(parts.detects)} and restarting {percent(parts.restarts)}." in words
    assert (f"The best interval is {lasting(failures.best(own['write'], mean))}" in words) == (
        own["save"] != "best"
    )
    assert len(words.split()) <= 110


@ALL
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_part_has_its_share_and_every_run_a_line(given, width):
    svg, (*_, parts) = draw(width, **given)["svg"], computed(given)
    for part, says, _ in explorer.LOOKS:
        assert f">{says} {percent(getattr(parts, part))}</text>" in svg
    for name, run in failures.REPORTED.items():
        assert len(re.findall(rf">\d  {name}: {run.machines:,} nodes, [^<]*</text>", svg)) == 1


def test_what_runs_reported_is_what_the_ledger_has():
    def printed(id):
        return float(claims.find(id).printed.strip("%").replace(",", ""))

    run = failures.REPORTED
    assert failures.RATES["RSC-1"] == printed("rsc1-rate")
    assert failures.RATES["RSC-2"] == printed("rsc2-rate")
    assert run["RSC-1"].share == printed("rsc1-goodput")
    assert run["RSC-2"].share == printed("rsc2-goodput")
    assert 100 * run["Llama 3 405B"].share == printed("llama3-effective-time")
    assert 100 * run["MegaScale"].share == printed("megascale-goodput")
    assert 8 * run["MegaScale"].machines == printed("megascale-gpus")
    assert 8 * run["OPT-175B"].machines == printed("opt-gpus")
    assert failures.RUNS["Llama 3 405B"].failures == printed("llama3-unexpected")
    by_hand, others = printed("opt-restarts-by-hand"), printed("opt-restarts")
    assert failures.RUNS["OPT-175B"].failures == by_hand + others
    assert run["OPT-175B"].share * 56 == pytest.approx(printed("opt-days"))


def test_opt_does_not_fit_until_a_restart_takes_hours():
    first = draw()
    assert "OPT-175B does not fit: it reported about 59 %, and the model gives 96 %." in first["text"]
    assert "If failures alone took the rest, each restart would take 6.8 hours." in first["text"]
    assert ">1  OPT-175B: 124 nodes, about 59 %; model 96 %</text>" in first["svg"]
    slow = draw(restart=28_800)["text"]
    assert "RSC-1 and Llama 3 405B do not fit: RSC-1 reported at least 90 %" in slow
    assert "With these times a run cannot reach that." in slow


def test_what_a_failure_must_have_cost_leads_to_the_reported_share():
    opt = failures.REPORTED["OPT-175B"]
    mean = failures.between(opt.machines, opt.rate)
    cost = failures.restart_for(opt.share, 1800, 30, mean)
    assert failures.goodput(1800, 30, mean, cost) == pytest.approx(opt.share)


def test_the_curve_passes_through_the_setting_and_is_highest_at_the_best_interval():
    given = controls.settings(explorer.CONTROLS, {"against": "interval"})
    best = explorer.interval_of(given)
    shares = [explorer.parts_at(given, save="own", interval=factor * best).trains for factor in (0.7, 1, 1.4)]
    assert shares[1] == explorer.parts_at(given).trains == max(shares)


def test_runs_without_an_interval_are_named_where_they_cannot_be_drawn():
    assert "1, 3, 4 printed no interval" in draw(against="interval")["svg"]
    assert draw(against="interval")["svg"].count(": reported</title>") == 2
    assert draw()["svg"].count(": reported</title>") == 5


def test_the_own_interval_is_idle_where_a_rule_decides():
    assert draw()["idle"] == draw(save="young")["idle"] == ["interval"]
    assert draw(save="own")["idle"] == []
