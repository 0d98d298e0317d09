"""The exercises of the chapter The network."""

import torch
import torch.distributed as dist

from allranks import launch, topology
from allranks.check import exercise
from allranks.check.stubs import is_number, is_returned
from allranks.trace import trace

SECONDS = 15.0
PORTS = 64
POD, LINK, OVERSUBSCRIPTION = 3072, 50e9, 7


@exercise
def two_level(answer):
    """`answer(t, inside, across)` sums `t` over all ranks: a g-th of it goes through the group `across`."""

    def on_rank(g):
        rank, p = dist.get_rank(), dist.get_world_size()
        nodes = [dist.new_group(range(first, first + g)) for first in range(0, p, g)]
        rails = [dist.new_group(range(place, p, g)) for place in range(g)]
        dist.barrier()
        t = torch.arange(24) * (rank + 1)
        with trace() as counted:
            total = answer(t, nodes[rank // g], rails[rank % g])
        return total, [call.nbytes for call in counted.log if call.group_size == p // g]

    for g, nodes in ((2, 4), (4, 2)):
        p = g * nodes
        results = launch(on_rank, g, world_size=p, timeout=SECONDS)
        expected = torch.arange(24) * p * (p + 1) // 2
        where = f"With {nodes} nodes of {g} ranks"
        for rank, (total, across) in enumerate(results):
            is_returned(total)
            assert torch.equal(total, expected), (
                f"{where}, the sum on rank {rank} is not the sum over all ranks."
            )
            most = 24 * 8 // g
            assert sum(across) == most, (
                f"{where}, rank {rank} reduces {sum(across)} bytes between the nodes; {most} are enough."
            )
    return "The sum is right, and each rank sends only a g-th of the bytes between the nodes."


@exercise
def hosts(answer):
    """`answer` is how many hosts a fat tree of 64-port switches connects."""
    is_number(answer)
    assert answer != PORTS**2 // 2, "That is what two levels connect; the tree has three."
    expected = topology.fat_tree(PORTS).hosts
    assert answer == expected, (
        f"{answer:g} is not right: how many pods are there, and how many hosts does a pod have?"
    )
    return f"64³/4 = {expected:,} hosts."


@exercise
def leaving(answer):
    """`answer` is how many GB/s leave a pod of 3,072 GPUs of 50 GB/s with an oversubscription of 7."""
    is_number(answer)
    everything = POD * LINK / 1e9
    assert abs(answer / everything - 1) > 0.01, (
        "That is what the GPUs could send; only a part of it leaves the pod."
    )
    expected = everything / OVERSUBSCRIPTION
    assert abs(answer / expected - 1) < 0.01, (
        f"{answer:g} GB/s is not right: what could all GPUs send, and what does the oversubscription leave?"
    )
    return f"{expected:,.0f} GB/s, or 7.1 for each GPU if all send out of the pod at once."
