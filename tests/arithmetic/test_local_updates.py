"""Utilization over a slow link: limits that need no simulation, and the table of Streaming DiLoCo."""

import pytest

from allranks import local_updates
from allranks.claims import ledger
from allranks.local_updates import (
    GRID,
    MODELS,
    PRINTED,
    TARGETS,
    WAYS,
    bits_per_step,
    fragments_of,
    last_below,
    printed_place,
    sending_steps,
    table_place,
    table_utilization,
    utilization,
)


@pytest.mark.parametrize("model", MODELS)
def test_it_is_the_published_table_or_one_point_of_its_grid_beside_it(model):
    off = [
        abs(table_place(model, target, **way) - printed_place(gbits))
        for name, way in WAYS.items()
        for target, gbits in zip(TARGETS, PRINTED[model, name])
    ]
    assert len(off) == 25 and max(off) <= 1
    assert off.count(0) >= 19


def test_the_table_is_the_one_of_the_ledger():
    column = {"1b": 1e9, "10b": 10e9, "100b": 100e9}
    for name, parameters in column.items():
        held = [entry for id, entry in ledger.entries().items() if id.startswith(f"streaming-table4-{name}-")]
        printed = [number for way in WAYS for number in PRINTED[parameters, way]]
        assert [float(entry.printed) for entry in held] == printed


@pytest.mark.parametrize("name", ["data parallel", "DiLoCo", "and 4 bits"])
def test_halving_the_grid_finds_the_last_bandwidth_below_a_target(name):
    shares = [table_utilization(1e9, gbits, **WAYS[name]) for gbits in GRID]
    for target in (*TARGETS, 1e-4):
        assert table_place(1e9, target, **WAYS[name]) == last_below(target, shares)


def test_without_overlap_or_backward_to_hide_in_it_is_computing_over_both():
    # One layer leaves when the step is over.
    assert utilization(100, 1, 2.0, 50, every=1, rounds=5) == pytest.approx(2 / (2 + 100 / 50))
    assert utilization(100, 1, 2.0, 50, every=10, rounds=1) == pytest.approx(20 / (20 + 2))


def test_a_fast_link_leaves_one_layer_exposed_and_a_slow_one_all_but_the_backward_pass():
    fast, slow = utilization(1, 10, 3.0, 100), utilization(1, 10, 3.0, 0.01)
    assert fast == pytest.approx(3 / (3 + 1 / 100))
    assert slow == pytest.approx(3 / (1 + 2 / 10 + 10 / 0.01))


@pytest.mark.parametrize("size", [1, 2, 6])
def test_a_delay_hides_what_fits_into_it(size):
    given = {"layer_bits": 1, "layers": 6, "step": 1.0, "link": 10, "every": 12, "size": size, "rounds": 20}
    assert utilization(delay=1, **given) >= utilization(delay=0, **given)
    assert utilization(delay=1, **given) > 0.99


def test_every_layer_is_in_one_fragment_and_every_fragment_is_sent_once():
    fragments = fragments_of(24, 3)
    assert fragments[1] == [1, 9, 17]
    assert sorted(layer for fragment in fragments for layer in fragment) == list(range(24))
    assert sending_steps(100, 8) == [11, 24, 36, 49, 61, 74, 86, 99]
    assert sending_steps(2, 4) == [0, 0, 0, 1]


def test_traffic_falls_with_steps_alone_and_with_bits():
    assert bits_per_step(1e9) / bits_per_step(1e9, bits=4, every=100) == 400


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: fragments_of(24, 5), "size must divide the 24 layers, not be 5"),
        (lambda: utilization(1, 4, 0, 1), "step must be a number above 0"),
        (lambda: utilization(1, 4, 1, 1, delay=-1), "delay must be a whole number of at least 0"),
        (lambda: table_utilization(2e9, 1), r"parameters must be one of 1000000000.0, 10000000000.0, "),
        (lambda: printed_place(0), "gbits must be a number above 0"),
        (lambda: local_updates.bits_per_step(1, every=0), "every must be a whole number of at least 1"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
