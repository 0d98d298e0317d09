"""How does torch cut a model along three axes? A piece for each: tp, then dp, and a stage for pp.

`parallelize_module` cuts layers into DTensors, `fully_shard` cuts these once more, and a `PipelineStage` runs
what is left. The order is fixed: what is sharded first cannot be cut afterwards.
"""

import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, parallel

from allranks.parallel.combine import Part


def local(t):
    """This rank's part of a tensor, if it is a DTensor; the tensor itself otherwise."""
    return t.to_local() if isinstance(t, DTensor) else t


def plan_of(part):
    """Plans for `parallelize_module`: one for each layer of a `Part`, one for the rest of it."""
    column, row = parallel.ColwiseParallel(), parallel.RowwiseParallel()
    columns = dict.fromkeys(("query", "key", "value", "up"), column)
    rows = dict.fromkeys(("out", "down"), row)
    whole = {"output_layouts": Replicate(), "desired_output_layouts": Replicate()}
    once = parallel.PrepareModuleOutput(**whole, use_local_output=False)
    words = {"token": parallel.RowwiseParallel(input_layouts=Replicate())}
    words |= {"head": parallel.ColwiseParallel(use_local_output=False)}
    layer = {**columns, **rows, "norm_1": once}  # one f for query, key and value
    return layer, {name: how for name, how in words.items() if hasattr(part, name)}


def cut_by_torch(part, mesh):
    """Cut a `Part` along `mesh`, a DeviceMesh with the axis tp; each layer keeps its share of the heads."""
    layer_plan, plan = plan_of(part)
    for layer in part.layers:
        layer.heads //= mesh.size()
        parallel.parallelize_module(layer, mesh, layer_plan)
    parallel.parallelize_module(part, mesh, plan)


def shard(part, mesh, **options):
    """Shard a `Part` along `mesh`, a DeviceMesh with the axis dp, by layers; `options` of `fully_shard`."""
    for module in (*part.layers, part):
        fully_shard(module, mesh=mesh, **options)


def torch_part(model, mesh, sharded=True, **options):
    """The `Part` of `model` for this rank of `mesh`, with dp, pp and tp: cut by tp, then sharded by dp."""
    part = Part(model, mesh["pp"].get_local_rank(), mesh["pp"].size())
    if mesh["tp"].size() > 1:
        cut_by_torch(part, mesh["tp"])
    if sharded:
        shard(part, mesh["dp"], **options)
    return part


def torch_loss(logits, targets):
    """The mean cross-entropy of logits, (batch, sequence, vocabulary), whose vocabulary tp may cut."""
    return local(F.cross_entropy(logits.flatten(0, 1), targets.flatten()))
