"""Accelerators and links: every number has a source, and agrees with what is known of it elsewhere."""

import math
import re

import pytest

from allranks import hardware
from allranks.hardware import ACCELERATORS, LINKS, accelerator, link, peak, ridge


@pytest.mark.parametrize("name, record", [*ACCELERATORS.items(), *LINKS.items()])
def test_every_record_names_its_source_and_its_year(name, record):
    assert record.name == name
    assert len(record.source) > 10
    assert re.fullmatch(r"(read )?20[0-2][0-9]", record.date)


@pytest.mark.parametrize("record", ACCELERATORS.values(), ids=lambda record: record.name)
def test_an_accelerator_is_in_bytes_and_flops_and_narrow_numbers_are_no_slower(record):
    assert 16e9 <= record.memory < 1e12
    assert 5e11 < record.bandwidth < 2e13
    rates = [record.peak[dtype] for dtype in ("fp4", "fp8", "bf16", "tf32", "fp32") if dtype in record.peak]
    assert rates == sorted(rates, reverse=True)
    assert all(1e13 < rate < 2e16 for rate in record.peak.values())


@pytest.mark.parametrize("record", LINKS.values(), ids=lambda record: record.name)
def test_a_link_is_in_seconds_and_bytes_a_second(record):
    assert 1e-7 < record.α < 1e-4
    assert 1e9 < record.bandwidth < 2e12
    assert record.β * record.bandwidth == pytest.approx(1)


def test_peaks_are_dense_ones():
    # Narayanan et al. 2021 divide by 312 TFLOP/s, Grattafiori et al. 2024 by 989: no factor 2 of sparsity.
    assert peak("a100-80gb") == 312e12
    assert peak("h100") == peak("h200") == pytest.approx(989e12, rel=1e-3)
    assert peak("h100", "fp8") == pytest.approx(2 * peak("h100", "bf16"), rel=1e-3)
    assert peak("h100", "tf32") == pytest.approx(peak("h100", "bf16") / 2, rel=1e-3)


@pytest.mark.parametrize(
    "name, dtype, units, clock, flops",
    [
        ("v100-32gb", "fp16", 80, 1.53e9, 1024),
        ("a100-40gb", "bf16", 108, 1.41e9, 2048),
        ("a100-80gb", "fp16", 108, 1.41e9, 2048),
        ("h100", "bf16", 132, 1.83e9, 4096),
        ("h100", "fp8", 132, 1.83e9, 8192),
        ("mi300x", "bf16", 304, 2.1e9, 2048),
        ("mi300x", "fp32", 304, 2.1e9, 256),
        ("mi355x", "fp32", 256, 2.4e9, 256),
    ],
)
def test_a_peak_is_units_times_clock_times_flops_a_cycle(name, dtype, units, clock, flops):
    assert peak(name, dtype) == pytest.approx(units * clock * flops, rel=3e-3)


@pytest.mark.parametrize(
    "name, dtype, chips, whole",
    [
        ("b300", "bf16", 8, 36e15 / 2),  # HGX B300: 36 PFLOP/s of sparse products
        ("gb200", "fp8", 72, 720e15 / 2),  # GB200 NVL72
        ("gb300", "fp4", 72, 1080e15),  # GB300 NVL72, dense
        ("trainium3", "fp8", 144, 362e15),  # Trn3 Gen2 UltraServer
    ],
)
def test_a_machine_has_the_peak_of_its_chips(name, dtype, chips, whole):
    assert chips * peak(name, dtype) == pytest.approx(whole, rel=2e-3)


def test_a_generation_doubles_pcie_and_a_slot_of_16_lanes_carries_31_gigabytes_a_second():
    assert link("pcie-4").bandwidth == pytest.approx(31.5e9, rel=1e-3)
    assert link("pcie-5").bandwidth == 2 * link("pcie-4").bandwidth == 4 * link("pcie-3").bandwidth


def test_nvlink_is_faster_than_pcie_which_is_faster_than_the_network_of_its_time():
    for inside, slot, outside in [
        ("nvlink-3", "pcie-4", "infiniband-hdr"),
        ("nvlink-4", "pcie-5", "infiniband-ndr"),
    ]:
        links = [link(name) for name in (inside, slot, outside)]
        assert [each.α for each in links] == sorted(each.α for each in links)
        assert [each.β for each in links] == sorted(each.β for each in links)


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("ranks_per_node", [1, 8])
def test_a_protocol_with_a_smaller_latency_moves_fewer_bytes_a_second(name, ranks_per_node):
    made = hardware.protocols(name, ranks_per_node)
    assert [each.name for each in made] == ["LL", "LL128", "Simple"]
    assert [each.α for each in made] == sorted({each.α for each in made})
    assert [each.bandwidth for each in made] == sorted({each.bandwidth for each in made})
    assert (made[-1].α, made[-1].bandwidth) == (link(name).α, link(name).bandwidth)


def test_a_ring_with_one_rank_a_node_pays_more_for_a_short_hop_over_a_network():
    alone, several = hardware.protocols("roce-400"), hardware.protocols("roce-400", 8)
    assert [one.α > other.α for one, other in zip(alone, several, strict=True)] == [True, True, False]
    assert hardware.protocols("nvlink-4") == hardware.protocols("nvlink-4", 8)


def test_an_accelerator_is_called_what_people_write():
    said = {name: hardware.called(name) for name in ("a100-40gb", "mi300x", "tpu-v5e", "tpu-7x", "trainium2")}
    assert list(said.values()) == ["A100", "MI300X", "TPU v5e", "TPU 7x", "Trainium2"]


def test_the_ridge_of_an_a100_is_153_flops_a_byte():
    assert math.floor(ridge("a100-80gb")) == 153


@pytest.mark.parametrize(
    "function, arguments, complaint",
    [
        (hardware.protocols, ("cable",), "link must be one of 'nvlink-2'"),
        (hardware.protocols, ("nvlink-4", 0), "ranks_per_node must be a whole number of at least 1, not 0"),
        (accelerator, ["gtx-1080"], "accelerator must be one of 'v100-32gb', .*, not 'gtx-1080'"),
        (link, ["carrier pigeon"], "link must be one of 'nvlink-2', .*, not 'carrier pigeon'"),
        (peak, ["v100-32gb", "bf16"], "dtype on v100-32gb must be one of 'fp16', 'fp32', not 'bf16'"),
        (ridge, ["tpu-v3", "fp8"], "dtype on tpu-v3 must be one of 'bf16', not 'fp8'"),
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones(function, arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        function(*arguments)


def test_the_record_of_a_link_is_a_tuple():
    assert tuple(hardware.LINKS["nvlink-4"])[:3] == ("nvlink-4", 3.4e-6, 450e9)
