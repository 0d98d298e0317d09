"""How long does one collective of NCCL take? Its three protocols on a ring, and NVLink's own sums.

The model: NCCL takes the fastest of LL, LL128 and Simple (`hardware.protocols`), whose rings leave a node
once for each member there. From Hopper on, the switch in a node can add (NVLS): an all-reduce of five ranks
or more then sends each byte once and gets it once.
"""

from .. import hardware
from ..inputs import one_of, whole
from .reached import CALL, WIRE

FACTORS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
SWITCHED = 5  # ranks from which NCCL 2.27 chose NVLS on H200 (Bekman 2023); on B200 it was 6
SWITCH_SHARE = 1.0  # of the link's bandwidth, as bus bandwidth: 1.06 on H200 and 0.94 on B200


def collective_seconds(op, nbytes, ranks, inside, between=None, nodes=1, switch=False):
    """Seconds of `op` over `nbytes`, as nccl-tests counts them, on `ranks` ranks in `nodes` nodes.

    inside, between: names of `hardware.LINKS`. switch: whether the switch inside a node can add.
    """
    factor = FACTORS[one_of("op", op, sorted(FACTORS))]
    whole("nodes", nodes), whole("ranks", ranks, 2)
    members = max(1, ranks // nodes)
    steps, sent = factor * (ranks - 1), factor * (ranks - 1) / ranks * nbytes
    near = hardware.protocols(inside)
    far = hardware.protocols(between, members) if nodes > 1 else near
    crossing = 1 / members if nodes > 1 else 0.0
    times = []
    for local, remote in zip(near, far):
        bandwidth = WIRE[0] * local.bandwidth
        if nodes > 1:
            bandwidth = min(bandwidth, members * WIRE[1] * remote.bandwidth)
        α = crossing * remote.α + (1 - crossing) * local.α
        times.append(steps * α + sent / bandwidth)
    if switch and nodes == 1 and ranks >= SWITCHED and op == "all_reduce":
        times.append(2 * near[-1].α + sent / (SWITCH_SHARE * near[-1].bandwidth))
    return CALL + min(times)


def bus_bandwidth(op, nbytes, ranks, inside, between=None, nodes=1, switch=False):
    """Bytes/s of the bus that nccl-tests prints: `nbytes` times its factor, over `collective_seconds`."""
    seconds = collective_seconds(op, nbytes, ranks, inside, between, nodes, switch)
    factor = FACTORS[op]
    return factor * (ranks - 1) / ranks * nbytes / seconds
