"""What do Megatron Core's layers do to the running model? They take the places of its matrices."""

import torch
import torch.distributed as dist

from .data_parallel import one_process


class WithoutBias(torch.nn.Module):
    """Megatron Core's layers return (output, bias to be added later); the running model wants the output."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def part_of(linear, by_rows, config):
    from megatron.core.tensor_parallel import layers

    kind = layers.RowParallelLinear if by_rows else layers.ColumnParallelLinear
    options = {"input_is_parallel": True} if by_rows else {"gather_output": False}
    options |= {"config": config, "init_method": torch.nn.init.zeros_}
    shape = linear.in_features, linear.out_features
    part = kind(*shape, bias=True, skip_bias_add=False, **options)
    size, rank = dist.get_world_size(), dist.get_rank()
    with torch.no_grad():
        part.weight.copy_(linear.weight.chunk(size, int(by_rows))[rank])
        part.bias.copy_(linear.bias if by_rows else linear.bias.chunk(size)[rank])
    return WithoutBias(part)


def megatron(model):
    from megatron.core import ModelParallelConfig, parallel_state

    size = dist.get_world_size()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=size)
    config = ModelParallelConfig(size, use_cpu_initialization=True)
    for layer in model.layers:
        layer.heads //= size
        for name in ("query", "key", "value", "up", "out", "down"):
            by_rows = name in ("out", "down")
            setattr(layer, name, part_of(getattr(layer, name), by_rows, config))
    return one_process(model)
