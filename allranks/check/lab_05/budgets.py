"""A configuration for a memory and a link."""

import copy
import random

from allranks import deepspeed_config
from allranks.check import exercise
from allranks.check.lab_05.common import CPU, on_ranks, quoted
from allranks.check.labs import is_written

CANDIDATES = [
    *({"stage": stage} for stage in range(4)),
    *({"stage": stage, "offload_optimizer": CPU} for stage in (1, 2, 3)),
    {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU},
]
BATCH = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}


def needs(zero, parameters, world_size):
    return deepspeed_config.needs(BATCH | {"zero_optimization": zero}, parameters, world_size)


def right(parameters, world_size, device, host, link):
    """The number of the candidate that is to be chosen, or None."""
    for number, zero in enumerate(CANDIDATES):
        there = needs(zero, parameters, world_size)
        if there.device <= device and there.host <= host and there.traffic.link <= link:
            return number
    return None


def _cases():
    """Budgets on both sides of each need of each candidate, in an order that changes."""
    cases = []
    for zero in CANDIDATES:
        parameters, ranks = 8 * random.randrange(10**6, 10**8), random.choice([2, 4, 8])
        there = needs(zero, parameters, ranks)
        exact = there.device, there.host, there.traffic.link
        cases.append((parameters, ranks, *exact))
        for tight in range(3):
            budget = [n - 1 if which == tight else n for which, n in enumerate(exact)]
            if min(budget) >= 0:
                cases.append((parameters, ranks, *budget))
        cases.append((parameters, ranks, exact[0], 10**13, 10**13))
    return random.sample(cases, len(cases))


def _chosen(answer, cases):
    results = []
    for parameters, ranks, device, host, link in cases:
        seconds = 4.0  # so that bytes a step and bytes a second differ, and divide without rounding
        given = copy.deepcopy(CANDIDATES)
        try:
            found = answer(given, parameters, ranks, device, host, link / seconds, seconds)
        except ValueError:
            results.append(("raised", given == CANDIDATES))
            continue
        results.append((found if isinstance(found, dict) else quoted(found), given == CANDIDATES))
    return results


def _said(zero):
    places = [f"{part.removeprefix('offload_')} on cpu" for part in zero if part.startswith("offload_")]
    return ", ".join([f"stage {zero.get('stage')}", *places])


@exercise
def choose(answer):
    """`answer(candidates, parameters, world_size, device, host, link, seconds)`: the first that fits."""
    is_written(answer)
    cases = _cases()
    for rank, found in enumerate(on_ranks(_chosen, answer, cases, world_size=1)):
        answers = [chosen for chosen, _ in found]
        assert any(isinstance(chosen, dict) or chosen == "raised" for chosen in answers), (
            f"Rank {rank}: the function returned {answers[0]}; expected a candidate."
        )
        for case, (chosen, unchanged) in zip(cases, found, strict=True):
            parameters, ranks, device, host, link = case
            who = (
                f"Rank {rank}: {parameters:,} parameters on {ranks} ranks; {device:,.0f} bytes on the "
                f"device, {host:,.0f} on the host, {link:,.0f} over the link in a step"
            )
            assert unchanged, f"{who}: the candidates have changed; return a copy."
            number = right(*case)
            if number is None:
                needed = f" {_over(chosen, case)}" if chosen in CANDIDATES else ""
                assert chosen == "raised", (
                    f"{who}: nothing fits, so expected ValueError; the function returned {chosen}.{needed}"
                )
                continue
            best = CANDIDATES[number]
            assert chosen != "raised", (
                f"{who}: ValueError, but {_said(best)} fits. A budget may be used up completely."
            )
            assert isinstance(chosen, dict), f"{who}: the function returned {chosen}; expected a candidate."
            assert chosen in CANDIDATES, f"{who}: {quoted(chosen)} is not one of the candidates."
            _judge_choice(chosen, best, case, who)
    return (
        f"Choices are right for {len(cases)} budgets, on both sides of what each candidate needs of device, "
        "host and link."
    )


def _over(chosen, case):
    """What the candidate `chosen` needs beyond its budget, a sentence; empty if nothing."""
    parameters, ranks, *budget = case
    there = needs(chosen, parameters, ranks)
    parts = zip(
        ("device", "host", "link"), (there.device, there.host, there.traffic.link), budget, strict=True
    )
    over = [f"{n:,.0f} bytes for the {what}" for what, n, room in parts if n > room]
    return f"{_said(chosen)} needs {' and '.join(over)}." if over else ""


def _judge_choice(chosen, best, case, who):
    over = _over(chosen, case)
    assert not over, f"{who}: {over} {_said(best)} fits."
    assert chosen == best, (
        f"{who}: {_said(chosen)} fits, but {_said(best)} fits too and comes first. A budget may be used "
        "up completely."
    )
