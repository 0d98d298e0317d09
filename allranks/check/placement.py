"""The exercises of the chapter Where each axis goes."""

import itertools

from allranks import hardware, topology, transformer
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_returned

SIZES = {"tp": 8, "pp": 16, "dp": 128}


@exercise
def members(answer):
    """`answer(rank, t, p, d)` lists the dp group of `rank` in the mesh [tp t, pp p, dp d], tp fastest."""
    for t, p, d in ((2, 2, 2), (4, 1, 3), (1, 2, 4), (8, 16, 4)):
        groups = topology.groups((("tp", t), ("pp", p), ("dp", d)), "dp")
        for group in (groups[0], groups[-1]):
            rank = group[-1]
            got = answer(rank, t, p, d)
            is_returned(got)
            assert sorted(got) == list(group), (
                f"With t, p, d = {t}, {p}, {d}, rank {rank} should be in {list(group)}, not in {sorted(got)}."
            )
    return "Ranks t·p apart hold the same part of the model."


def _machine():
    """Nodes of 64 with NVLink 5, and a network of 400 Gbit/s with full bisection."""
    nvlink, network = hardware.LINKS["nvlink-5"], hardware.LINKS["roce-400"]
    return (
        topology.Level("node", 64, nvlink.α, nvlink.bandwidth, 1),
        topology.Level("cluster", 24576, network.α, network.bandwidth, 1),
    )


@exercise
def best_order(answer):
    """`answer` lists tp, pp and dp, the fastest first, in the order that costs least in nodes of 64."""
    is_filled(answer, "a list")
    assert sorted(answer) == sorted(SIZES), "List each of 'tp', 'pp', 'dp' once, the fastest first."
    seconds = {}
    for order in itertools.permutations(SIZES):
        mesh = [(axis, SIZES[axis]) for axis in order]
        llama = transformer.PRESETS["llama3-405b"]
        seconds[order] = topology.layout_seconds(mesh, _machine(), llama, 16, gradient_bytes=4)
    mine, least = seconds[tuple(answer)], min(seconds.values())
    assert mine == least, f"This order takes {mine:.2f} s a step; another is faster. Which axis sends most?"
    return f"{mine:.2f} s a step; the next best order takes {sorted(seconds.values())[1]:.2f} s."
