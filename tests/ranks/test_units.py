"""A unit is whole from its all-gather until it is resharded, and its neighbour is prefetched in backward."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from allranks import launch, units


def test_a_unit_is_whole_from_its_gather_until_it_is_resharded():
    log = [
        "all_gather (a)",
        "post_forward (a)",
        "all_gather (b)",
        "all_gather (a)",
        "post_backward_reshard (b)",
        "post_backward_reshard (a)",
    ]
    bars = units.whole_from_to(log)
    assert bars == [["a", 0, 1], ["b", 2, 4], ["a", 3, 5]]
    assert units.most_at_once(bars) == 2


def test_the_outermost_unit_has_no_name_and_is_not_counted():
    bars = units.whole_from_to(["all_gather", "all_gather (a)", "post_forward (a)", "post_forward"])
    assert bars == [["rest", 0, 3], ["a", 1, 2]]
    assert units.most_at_once(bars) == 1


def on_rank(reshard):
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
    for module in model:
        fully_shard(module, reshard_after_forward=reshard)
    fully_shard(model)
    with units.labels() as seen:
        model(torch.ones(2, 4)).sum().backward()
    dist.barrier()
    return units.most_at_once(units.whole_from_to(seen.log))


def test_two_layers_are_whole_with_resharding_and_all_without():
    assert launch(on_rank, True, world_size=2) == [2, 2]
    assert launch(on_rank, False, world_size=2) == [3, 3]
