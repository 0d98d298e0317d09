"""Lab 04, shards in fp32, messages in 16 bits: right answers in several styles, and what students get wrong."""

from functools import partial

import pytest
import torch  # noqa: F401, for the edits
import torch.distributed as dist
from students import judged_on_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from allranks import check


def shard(model, dtype, reduce_dtype):
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduce_dtype)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model


def on_a_mesh(model, dtype, reduce_dtype):
    device = next(model.parameters()).device.type
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    wrap = partial(fully_shard, mesh=mesh, mp_policy=MixedPrecisionPolicy(dtype, reduce_dtype))
    for layer in reversed(model.layers):
        wrap(layer)
    return wrap(model)


def by_children(model, dtype, reduce_dtype):
    policies = [MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduce_dtype) for _ in range(9)]
    list(map(partial(fully_shard, mp_policy=policies[0]), model.layers.children()))
    fully_shard(model, mp_policy=policies[1], reshard_after_forward=False)
    return model


LAYERS = "    for layer in model.layers:\n        fully_shard(layer, mp_policy=policy)\n"
ROOT = "    fully_shard(model, mp_policy=policy)\n"

RIGHT = [(shard,), (on_a_mesh,), (by_children,)]
WRONG = {
    "shard": {
        "each rank for itself": (
            "and must not be rounded afterwards",
            "    policy =",
            "    mesh = init_device_mesh('cpu', (dist.get_world_size(), 1), mesh_dim_names=('a', 'b'))['b']\n    policy =",
            "fully_shard(layer, ",
            "fully_shard(layer, mesh=mesh, ",
            "fully_shard(model, ",
            "fully_shard(model, mesh=mesh, ",
        ),
        "replicated and sharded": (
            "a unit for each layer and one for the rest",
            "    policy =",
            "    mesh = init_device_mesh('cpu', (dist.get_world_size(), 1), mesh_dim_names=('a', 'b'))\n    policy =",
            "fully_shard(layer, ",
            "fully_shard(layer, mesh=mesh, ",
            "fully_shard(model, ",
            "fully_shard(model, mesh=mesh, ",
        ),
        "the root alone": ("a unit for each layer and one for the rest", LAYERS, ""),
        "the layers alone": ("pass the model itself to `fully_shard`", ROOT, ""),
        "the root first": ("TypeError", LAYERS, "", ROOT, ROOT + LAYERS),
        "layers without a policy": ("including the one for the rest", "(layer, mp_policy=policy)", "(layer)"),
        "the root without a policy": (
            "including the one for the rest",
            "(model, mp_policy=policy)",
            "(model)",
        ),
        "no reduce_dtype": ("and must not be rounded afterwards", ", reduce_dtype=reduce_dtype)", ")"),
        "no param_dtype": ("set `param_dtype`", "param_dtype=dtype, ", ""),
        "both exchanged": (
            "and must not be rounded afterwards",
            "param_dtype=dtype, reduce_dtype=reduce_dtype",
            "param_dtype=reduce_dtype, reduce_dtype=dtype",
        ),
        "summed in dtype": (
            "and must not be rounded afterwards",
            "reduce_dtype=reduce_dtype",
            "reduce_dtype=dtype",
        ),
        "summed in fp32": ("set `reduce_dtype`", "reduce_dtype=reduce_dtype", "reduce_dtype=torch.float32"),
        "bf16": ("the logits are in bfloat", "param_dtype=dtype", "param_dtype=torch.bfloat16"),
        "shards in 16 bits": (
            "and the optimizer updates them",
            "    for layer",
            "    model.to(dtype)\n    for layer",
        ),
        "weights rounded once": (
            "the values of the weights have changed",
            "    for layer",
            "    model.to(dtype).float()\n    for layer",
        ),
        "no return": ("expected the model", "    return model", "    pass"),
        "the first layer alone": (
            "a unit for each layer and one for the rest",
            "in model.layers:",
            "in model.layers[:1]:",
        ),
        "all layers but the last": (
            "a unit for each layer and one for the rest",
            "in model.layers:",
            "in model.layers[:-1]:",
        ),
        "all layers one unit": (
            "a unit for each layer and one for the rest",
            LAYERS,
            "    fully_shard(list(model.layers), mp_policy=policy)\n",
        ),
        "two layers a unit": (
            "a unit for each layer and one for the rest",
            LAYERS,
            "    for i in range(0, len(model.layers), 2):\n        fully_shard(list(model.layers[i : i + 2]), mp_policy=policy)\n",
        ),
        "parts of layers too": (
            "a unit for each layer and one for the rest",
            "        fully_shard(layer",
            "        for part in layer.children():\n            if list(part.parameters()):\n                fully_shard(part, mp_policy=policy)\n        fully_shard(layer",
        ),
        "the embedding a unit too": (
            "a unit for each layer and one for the rest",
            ROOT,
            "    fully_shard(next(model.children()), mp_policy=policy)\n" + ROOT,
        ),
        "replicas": (
            "no parameter is sharded",
            LAYERS,
            "",
            "    fully_shard(model, mp_policy=policy)\n",
            "    from torch.nn.parallel import DistributedDataParallel\n    model = DistributedDataParallel(model.to(dtype))\n",
        ),
        "replicated by DDP beside autocast": (
            "no parameter is sharded",
            LAYERS,
            "",
            ROOT,
            "    model.forward = torch.autocast('cpu', dtype)(model.forward)\n    from torch.nn.parallel import DistributedDataParallel\n    model = DistributedDataParallel(model)\n",
        ),
        "autocast as well": (
            "`param_dtype` alone makes the unit compute in that dtype",
            ROOT,
            ROOT + "    model.forward = torch.autocast('cpu', dtype)(model.forward)\n",
        ),
        "gradients in 16 bits": (
            "and must not be rounded afterwards",
            ROOT,
            ROOT
            + "    for p in model.parameters():\n        p.register_post_accumulate_grad_hook(lambda p: p.grad.copy_(p.grad.to(dtype).float()))\n",
        ),
        "a copy returned": ("expected the model", "    return model", "    return model.state_dict()"),
        "a hand-made sum in 16 bits": (
            "RuntimeError",
            "    return model",
            "    for unit in [*model.layers, model]:\n        unit.set_reduce_scatter_divide_factor(1.0)\n    return model",
        ),
    }
}


@pytest.mark.stamped("lab 04")
def test_every_answer_is_told_what_it_is(nothing_is_left_behind):
    judged_on_ranks(check.lab_04.shard, __name__)
