"""What Megatron Core and torchtitan do with the running model and its ranks, recorded for *Frameworks*.

    pip install --no-deps --target .frameworks megatron-core==0.16.1 torchtitan==0.3.0 \
        spmd_types==0.2.3 tyro typeguard docstring_parser
    PYTHONPATH=.:.frameworks python benchmarks/frameworks.py

Megatron Core's layers train the digits model on two gloo ranks; then each framework makes its groups for four
configurations, on fake ranks (torch's "fake" backend, one process a rank). Takes a minute; writes
allranks/recipes/recorded.json.
"""

import json
import warnings
from importlib import metadata
from pathlib import Path

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from allranks import launch, recipes
from allranks.model import digits

FILE = Path(recipes.__file__).parent / "recorded.json"
CONFIGURATIONS = {  # world size, then sizes
    "tp 2, cp 2, pp 2 on 16": (16, {"tp": 2, "cp": 2, "pp": 2}),
    "tp 4, pp 2 on 32": (32, {"tp": 4, "pp": 2}),
    "tp 2, ep 2 on 8": (8, {"tp": 2, "ep": 2}),
    "tp 2, pp 2, ep 4 on 16": (16, {"tp": 2, "pp": 2, "ep": 4}),
}


def megatron_groups(sizes):
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=sizes.get("tp", 1),
        context_parallel_size=sizes.get("cp", 1),
        pipeline_model_parallel_size=sizes.get("pp", 1),
        expert_model_parallel_size=sizes.get("ep", 1),
        create_gloo_process_groups=False,
    )
    made = {
        "tp": parallel_state.get_tensor_model_parallel_group(),
        "cp": parallel_state.get_context_parallel_group(),
        "dp": parallel_state.get_data_parallel_group(),
        "pp": parallel_state.get_pipeline_model_parallel_group(),
        "ep": parallel_state.get_expert_model_parallel_group(),
    }
    found = {axis: dist.get_process_group_ranks(group) for axis, group in made.items()}
    parallel_state.destroy_model_parallel()
    return found


def torchtitan_groups(sizes):
    from torchtitan.config.configs import ParallelismConfig
    from torchtitan.distributed.parallel_dims import ParallelDims

    config = ParallelismConfig(
        tensor_parallel_degree=sizes.get("tp", 1),
        context_parallel_degree=sizes.get("cp", 1),
        pipeline_parallel_degree=sizes.get("pp", 1),
        expert_parallel_degree=sizes.get("ep", 1),
    )
    dims = ParallelDims.from_config(config, dist.get_world_size())
    dims.build_mesh()
    names = {"dp": "dp_shard"} | {axis: axis for axis in sizes}
    found = {axis: dims.get_mesh(name).get_group() for axis, name in names.items()}
    return {axis: dist.get_process_group_ranks(group) for axis, group in found.items()}


def groups(framework, world_size, sizes):
    """{axis: the groups along it}, each rank having been asked for its own."""
    made = {}
    for rank in range(world_size):
        dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
        for axis, group in framework(sizes).items():
            assert rank in group
            if group not in made.setdefault(axis, []):
                made[axis].append(group)
        dist.destroy_process_group()
    return made


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    data, choose = digits(), torch.Generator().manual_seed(0)
    batches = [data[torch.randint(len(data), (24,), generator=choose)] for _ in range(4)]
    ranks = launch(recipes.train, recipes.megatron, batches, 1, world_size=2, backend="gloo", timeout=120)
    assert ranks[0] == ranks[1]
    recorded = {
        "versions": {name: metadata.version(name) for name in ("megatron-core", "torchtitan", "torch")},
        "megatron": ranks[0],
        "groups": {
            name: {
                "world_size": world_size,
                "megatron": groups(megatron_groups, world_size, sizes),
                "torchtitan": groups(torchtitan_groups, world_size, sizes),
            }
            for name, (world_size, sizes) in CONFIGURATIONS.items()
        },
    }
    recorded["versions"]["torch"] = recorded["versions"]["torch"].partition("+")[0]
    FILE.write_text(json.dumps(recorded, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
