"""The exercises of the chapter on frameworks."""

from allranks import framework_config
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_returned

FLAGS, RANKS, RANK = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2", 32, 11
LAYOUTS = (
    ("--tensor-model-parallel-size 2", 8),
    ("--tensor-model-parallel-size 2 --use-distributed-optimizer", 8),
    ("--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --context-parallel-size 2", 64),
    ("--pipeline-model-parallel-size 4 --use-distributed-optimizer", 16),
)


@exercise
def group(answer):
    """`answer`: the ranks with which rank 11 averages its gradients, itself included."""
    is_filled(answer, "the ranks of a group")
    setup = framework_config.megatron(FLAGS, RANKS)
    right = {axis: framework_config.group_of(RANK, setup, axis) for axis in ("tp", "pp", "dp")}
    found = tuple(sorted(answer))
    assert found != right["tp"], "That is the tp group: these ranks hold other parts of rank 11's layers."
    assert found != right["pp"], "That is the pp group: these ranks hold other layers than rank 11."
    assert RANK in found, f"Rank {RANK} itself is missing: it belongs to its own group."
    assert all(isinstance(rank, int) and rank < RANKS for rank in found), (
        f"Ranks are whole numbers below {RANKS}."
    )
    assert not any(rank >= RANKS // 2 for rank in found), (
        f"Ranks {RANKS // 2} and up are in the second stage of the pipeline; rank {RANK} is in the first."
    )
    assert len(found) == len(right["dp"]), (
        f"The group should have {len(right['dp'])} ranks, one for each replica: {RANKS} ranks ÷ (tp 4 × "
        "pp 2)."
    )
    assert found == right["dp"], "Ranks of one tp group are next to each other; dp steps over tp groups."
    return f"Ranks {', '.join(map(str, found))}: one from each tp group in the first stage."


@exercise
def translate(answer):
    """`answer(flags, world_size)`: torchtitan's degrees for the groups of Megatron-LM's flags."""
    for flags, world_size in LAYOUTS:
        wanted = framework_config.megatron(flags, world_size)
        degrees = answer(flags, world_size)
        is_returned(degrees, "a dict of degrees", "translate")
        where = f"{flags.replace('--', '')} on {world_size} ranks"
        try:
            found = framework_config.torchtitan(degrees, world_size)
        except ValueError as error:
            raise AssertionError(f"torchtitan refuses these degrees for {where}: {error}.") from None
        for axis in ("tp", "cp", "pp", "dp"):
            ours, theirs = (framework_config.group_of(0, setup, axis) for setup in (found, wanted))
            assert ours == theirs, f"For {where}, rank 0's {axis} group is {ours}; Megatron-LM has {theirs}."
        kinds = dict(wanted.mesh)
        assert found.mesh == wanted.mesh, (
            f"For {where}, Megatron-LM {'shards' if kinds['dp_shard'] > 1 else 'replicates'} over dp: "
            "give both degrees, because data_parallel_shard_degree takes all remaining ranks if it is "
            "left out."
        )
    return "Both have the same groups, sharded where Megatron-LM shards and replicated where it replicates."
