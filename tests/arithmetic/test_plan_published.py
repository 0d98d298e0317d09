"""The layouts that papers published are plans, and among the fastest."""

import time

import pytest
from planned import A100, GRAND_TETON, H100, SELENE

from allranks import plan, transformer
from allranks.transformer import PRESETS

PUBLISHED = [  # Narayanan et al. 2021, Table 1: model, GPUs, batch, t, p; and the place the planner gives it
    ("megatron-1.7b", 32, 512, 1, 1, 1),
    ("megatron-18b", 256, 1024, 8, 1, 5),
    ("megatron-76b", 1024, 1792, 8, 4, 1),
    ("megatron-146b", 1536, 2304, 8, 8, 1),
    ("megatron-310b", 1920, 2160, 8, 16, 2),
    ("megatron-530b", 2520, 2520, 8, 35, 2),
    ("megatron-1t", 3072, 3072, 8, 64, 1),
]


@pytest.mark.parametrize("name, devices, batch, t, p, place", PUBLISHED)
def test_the_layouts_of_megatron_are_the_fastest_or_nearly(name, devices, batch, t, p, place):
    found = plan.plans(
        PRESETS[name], A100, devices, batch, **SELENE, zero_stages=(0,), recomputations=("full",),
        at_most={"cp": 1}, **plan.IN_2021,
    )  # fmt: skip
    sizes = [(each.layout.tp, each.layout.pp) for each in found]
    assert sizes.index((t, p)) + 1 == place
    assert found[place - 1].seconds < 1.06 * found[0].seconds


def test_the_first_place_does_not_depend_on_the_efficiency():
    for efficiency in (0.4, 0.8):
        best = plan.plans(
            PRESETS["megatron-1t"], A100, 3072, 3072, **SELENE, zero_stages=(0,), recomputations=("full",),
            at_most={"cp": 1}, **plan.IN_2021, efficiency=efficiency,
        )[0]  # fmt: skip
        assert best.layout[:4] == (8, 1, 64, 6)


LLAMA_3 = [  # Grattafiori et al. 2024, Table 4: GPUs, sequence, sequences of a step, cp, dp
    (8192, 8192, 2048, 1, 64),
    (16384, 8192, 2048, 1, 128),
    (16384, 131072, 128, 16, 8),
]


@pytest.mark.parametrize("devices, sequence, batch, cp, dp", LLAMA_3)
def test_the_layouts_of_llama_3_are_plans(devices, sequence, batch, cp, dp):
    model = transformer.llama(126, 16384, 128, 128256, sequence, 8, 53248)
    found = plan.plans(
        model, H100, devices, batch, **GRAND_TETON, zero_stages=(1, 2), recomputations=("none",),
        at_most={"tp": 8, "cp": cp, "pp": 16}, dropout=False, fused=True, order=plan.LLAMA_ORDER,
    )  # fmt: skip
    assert (8, cp, 16, dp) in [each.layout[:4] for each in found]


def test_all_layouts_of_llama_3_on_16384_devices_take_seconds():
    start = time.process_time()
    found = plan.plans(PRESETS["llama3-405b"], H100, 16384, 2048, dropout=False, fused=True, **GRAND_TETON)
    assert len(found) > 10_000
    assert time.process_time() - start < 15
