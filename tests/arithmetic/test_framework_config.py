"""Four frameworks' configurations: the groups that they make, and what is refused."""

import pytest

from allranks import framework_config, recipes

FLAGS = {
    "tp": "--tensor-model-parallel-size",
    "cp": "--context-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "ep": "--expert-model-parallel-size",
}
DEGREES = {
    "tp": "tensor_parallel_degree",
    "cp": "context_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "ep": "expert_parallel_degree",
}
RECORDED = recipes.recorded()["groups"]


@pytest.mark.parametrize("name", RECORDED)
def test_megatron_core_and_torchtitan_made_these_groups(name):
    pairs = [pair.split() for pair in name.partition(" on ")[0].split(", ")]
    groups, compared = RECORDED[name], 0
    setups = {
        "megatron": framework_config.megatron(
            " ".join(f"{FLAGS[axis]} {size}" for axis, size in pairs), groups["world_size"]
        ),
        "torchtitan": framework_config.torchtitan(
            {DEGREES[axis]: int(size) for axis, size in pairs}, groups["world_size"]
        ),
    }
    for framework, setup in setups.items():
        for axis, members in groups[framework].items():
            for group in members:
                for rank in group:
                    assert framework_config.group_of(rank, setup, axis) == tuple(group)
                    compared += 1
    assert compared >= 8 * groups["world_size"]


def sizes(setup):
    return {axis: size for axis, size in setup.mesh if size > 1}


def test_what_is_left_out():
    assert sizes(framework_config.torchtitan({}, 8)) == {"dp_shard": 8}
    assert sizes(framework_config.megatron("", 8)) == {"dp_replicate": 8}
    assert sizes(framework_config.accelerate({}, 8)) == {"dp_replicate": 8}
    assert sizes(framework_config.deepspeed({}, 8)) == {"dp_replicate": 8}
    assert sizes(framework_config.deepspeed({"zero_optimization": {"stage": 1}}, 8)) == {"dp_shard": 8}


def test_the_stage_of_zero():
    assert framework_config.torchtitan({}, 8).zero_stage == 3
    assert framework_config.torchtitan({"fsdp_reshard_after_forward": "never"}, 8).zero_stage == 2
    assert framework_config.torchtitan({"pipeline_parallel_degree": 2}, 8).zero_stage == 2
    assert framework_config.torchtitan({"tensor_parallel_degree": 8}, 8).zero_stage == 0
    assert framework_config.megatron("--use-distributed-optimizer", 8).zero_stage == 1
    assert framework_config.accelerate({"dp_shard_size": 8}, 8).zero_stage == 3


def test_megatron_can_let_pipelines_vary_before_replicas():
    flags = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size=2"
    setup = framework_config.megatron(flags, 8)
    assert framework_config.group_of(0, setup, "pp") == (0, 4)
    other = framework_config.megatron(f"{flags} --use-tp-pp-dp-mapping", 8)
    assert framework_config.group_of(0, other, "pp") == (0, 2)
    assert framework_config.group_of(0, other, "dp") == (0, 4)


def test_whole_experts_have_the_same_groups_in_megatron_as_in_torchtitan():
    titan = framework_config.torchtitan({"tensor_parallel_degree": 2, "expert_parallel_degree": 4}, 8)
    flags = "--tensor-model-parallel-size 2 --expert-model-parallel-size 4 --expert-tensor-parallel-size"
    for etp, same in ((1, True), (2, False)):
        megatron = framework_config.megatron(f"{flags} {etp}", 8)
        assert (megatron.experts == titan.experts) is same


def test_accelerate_reads_the_names_of_its_yaml_file():
    plain = framework_config.accelerate({"tp_size": 2, "sp_size": 2, "dp_shard_size": 2}, 8)
    prefixed = {
        f"parallelism_config_{name}": 2 for name in ("tp_size", "sp_size", "dp_shard_size", "cp_backend")
    }
    assert framework_config.accelerate(prefixed, 8) == plain
    assert sizes(plain) == {"tp": 2, "cp": 2, "dp_shard": 2}


def test_deepspeed_makes_sequence_groups_only_if_both_sizes_are_there():
    assert sizes(framework_config.deepspeed({"sequence_parallel_size": 2}, 8)) == {"dp_replicate": 8}
    both = {"sequence_parallel_size": 2, "data_parallel_size": 4}
    assert sizes(framework_config.deepspeed(both, 8)) == {"cp": 2, "dp_replicate": 4}


@pytest.mark.parametrize(
    "read, given, said",
    [
        ("torchtitan", {"tensor_parallel_degree": 3}, "multiple of the product of all other degrees = 3"),
        ("torchtitan", {"tensor_paralel_degree": 2}, "tensor_paralel_degree is not a size"),
        ("torchtitan", {"tensor_parallel_degre": 2}, "tensor_parallel_degre is not a size"),
        ("torchtitan", {"tensor_parallel_degree": "2"}, "whole number of at least 1, not '2'"),
        (
            "torchtitan",
            {"data_parallel_shard_degree": 2},
            "dp_shard 2 × dp_replicate 1 × pp 1 is 2; allowed: 8",
        ),
        ("torchtitan", {"fsdp_reshard_after_forward": True}, "fsdp_reshard_after_forward must be one of"),
        ("torchtitan", "tp 2", "parallelism must be a dict"),
        ("megatron", "--tensor-model-parallel-size two", "whole number of at least 1, not 'two'"),
        (
            "megatron",
            "--tensor-parallel-size 2",
            "--tensor-parallel-size is not a size that Megatron-LM knows",
        ),
        ("megatron", "--expert-model-parallel-size 3", "multiple of etp × ep = 3"),
        ("megatron", ["--use-distributed-optimizer"], "flags must be a command line"),
        ("accelerate", {"tp_size": 2}, "is 2; allowed: 8"),
        ("accelerate", {"cp_size": 2, "sp_size": 2}, "one of them above 1"),
        ("accelerate", {"pp_size": 2}, "pp_size is not a size"),
        ("deepspeed", {"zero_optimization": {"stage": 4}}, "zero_optimization.stage must be one of"),
        ("deepspeed", {"tensor_parallel": {"autotp_size": 3}}, "multiple of tp × sp × stages = 3"),
    ],
)
def test_refused(read, given, said):
    with pytest.raises(ValueError) as error:
        getattr(framework_config, read)(given, 8)
    assert said in str(error.value)


def test_deepspeed_refuses_a_pipeline_with_sharded_gradients():
    with pytest.raises(
        ValueError, match="stage 2 of ZeRO with 2 stages of a pipeline; allowed: stages 0 and 1"
    ):
        framework_config.deepspeed({"zero_optimization": {"stage": 2}}, 8, stages=2)


def test_a_rank_outside_and_an_axis_that_is_none():
    setup = framework_config.megatron("", 8)
    with pytest.raises(ValueError, match="rank must be a whole number from 0 to 7"):
        framework_config.group_of(8, setup, "dp")
    with pytest.raises(ValueError, match="axis must be one of"):
        framework_config.group_of(0, setup, "data")
