"""What Accelerate and DeepSpeed make of a configuration, beside our reading of it; what recipes send."""

import warnings

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from allranks import collectives, framework_config, launch, recipes
from allranks.model import digits


@pytest.fixture
def of_rank():
    """A function that makes this process one of `world_size` fake ranks, and ends them all after the test."""

    def begin(rank, world_size):
        dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())

    yield begin
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize(
    "sizes", [{"tp_size": 2, "dp_shard_size": 4}, {"dp_replicate_size": 2, "cp_size": 2, "dp_shard_size": 2}]
)
@pytest.mark.parametrize("rank", [0, 5])
def test_accelerate_makes_these_groups(of_rank, sizes, rank):
    config = pytest.importorskip(
        "accelerate.parallelism_config", reason="the peer accelerate is not installed"
    )
    of_rank(rank, 8)
    mesh = config.ParallelismConfig(**sizes).build_device_mesh("cpu")
    setup = framework_config.accelerate(sizes, 8)
    for axis in mesh.mesh_dim_names:
        theirs = dist.get_process_group_ranks(mesh[axis].get_group())
        assert framework_config.group_of(rank, setup, axis) == tuple(theirs)


@pytest.mark.parametrize("stages, tp, world_size", [(2, 2, 16), (4, 1, 8), (1, 4, 8)])
def test_deepspeed_makes_these_groups(stages, tp, world_size):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        topology = pytest.importorskip(
            "deepspeed.runtime.pipe.topology", reason="the peer DeepSpeed is not installed"
        )
    dp = world_size // stages // tp
    theirs = topology.PipeModelDataParallelTopology(num_pp=stages, num_mp=tp, num_dp=dp)
    setup = framework_config.deepspeed({"tensor_parallel": {"autotp_size": tp}}, world_size, stages)
    for axis, name in {"tp": "model", "pp": "pipe", "dp": "data"}.items():
        for group in theirs.get_axis_comm_lists(name):
            assert framework_config.group_of(group[0], setup, axis) == tuple(group)


def test_what_a_recipe_sends_is_known_and_who_asked_for_it():
    batches = list(digits()[:48].split(24))
    found = launch(
        recipes.train_all, {"by hand": recipes.by_hand, "FSDP2": recipes.fsdp2}, batches, world_size=2
    )
    assert found[0] == found[1]
    by_hand, fsdp2 = found[0]["by hand"], found[0]["FSDP2"]
    assert by_hand["losses"] == fsdp2["losses"]
    assert by_hand["calls"] == {"all_reduce": 37} and fsdp2["calls"] == {"all_gather": 5, "reduce_scatter": 3}
    assert by_hand["sent"] == {"all_reduce": collectives.ring_all_reduce_bytes(4 * 29_312, 2)}
    assert by_hand["asked"] == [("all_reduce", "allranks.recipes.data_parallel.step")]
    assert {who.rpartition(".")[2] for _, who in fsdp2["asked"]} == {"foreach_all_gather", "foreach_reduce"}


def test_a_collective_that_a_library_starts_in_c_has_autograd_as_its_caller():
    batches = list(digits()[:72].split(24))  # the second step still broadcasts how it buckets
    run = launch(recipes.train, recipes.ddp, batches, world_size=2)[0]
    assert run["asked"] == [("all_reduce", "torch.autograd.graph._engine_run_backward")]
