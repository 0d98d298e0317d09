"""Devices and links of the clusters that plans are tested on, and how many examples a test draws."""

from hypothesis import HealthCheck, settings

from allranks import hardware

A100, H100 = hardware.ACCELERATORS["a100-80gb"], hardware.ACCELERATORS["h100"]
SELENE = {"inside": hardware.LINKS["nvlink-3"], "between": hardware.LINKS["infiniband-hdr"]}
GRAND_TETON = {"inside": hardware.LINKS["nvlink-4"], "between": hardware.LINKS["roce-400"]}
RUNNING = {**SELENE, "efficiency": 0.5}
few = settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much])
