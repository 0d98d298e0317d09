"""The case studies compute what their sources print, and the planner finds the layouts that they used."""

import time

import pytest

from allranks import hardware, plan
from allranks.published import cases

TIMED = [name for name, case in cases.CASES.items() if case.hours]
DENSE = [name for name, case in cases.CASES.items() if case.layout]


def test_every_number_is_in_the_ledger():
    for case in cases.CASES.values():
        named = [case.devices, case.visited, case.tokens, case.stated, *(case.pace or ())[:1]]
        named += [id for pair in case.hours or () for id in pair if id != "1"]
        assert all(cases.number(id) > 0 for id in named if id)


@pytest.mark.parametrize("name", DENSE)
def test_a_layout_has_the_devices_and_the_parameters_that_are_printed(name):
    case = cases.CASES[name]
    assert case.layout.devices == cases.number(case.devices)
    if case.visited:
        assert cases.parameters(case) == pytest.approx(cases.number(case.visited), rel=0.003)


@pytest.mark.parametrize("name", TIMED)
def test_a_whole_run_is_its_pace_for_a_share_of_its_hours(name):
    case = cases.CASES[name]
    whole, paced, share = cases.whole_run(case), cases.at_pace(case), cases.time_share(case)
    assert whole == pytest.approx(paced * share)
    assert 0.2 < whole < cases.stated(case) and 0.6 < share < 1.002


def test_whole_runs_are_what_the_book_says():
    found = {name: round(100 * cases.whole_run(cases.CASES[name])) for name in TIMED}
    assert found == {
        "PaLM 540B": 30,
        "BLOOM 176B": 32,
        "Llama 3 405B": 35,
        "DeepSeek-V3": 35,
        "SmolLM3 3B": 21,
    }


def test_a_mesh_that_is_not_found_has_no_place():
    assert cases.place(cases.CASES["SmolLM3 3B"], []) is None


def test_a_source_that_prints_no_hours_has_no_whole_run():
    assert cases.whole_run(cases.CASES["OLMo 2 13B"]) is None
    assert cases.flops(cases.CASES["GShard 600B"]) is None


def test_plan_on_16384_devices_takes_two_seconds():
    case = cases.CASES["Llama 3 405B"]
    limits = {"tp": 8, "cp": 1}
    begin = time.process_time()
    found = plan.plans(
        case.model, hardware.ACCELERATORS["h100"], 16384, 2048, at_most=limits, **cases.options(case)
    )
    assert len(found) > 100 and time.process_time() - begin < 2
