"""What do Megatron-Core's layers do to the running model? They take the places of its matrices."""

import torch
import torch.distributed as dist

from .data_parallel import one_process


class WithoutBias(torch.nn.Module):
    """Megatron-Core's layers return (output, bias to be added later); the running model wants the output."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def megatron(model):
    from megatron.core import ModelParallelConfig, parallel_state
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

    size, rank = dist.get_world_size(), dist.get_rank()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=size)
    config = ModelParallelConfig(tensor_model_parallel_size=size, use_cpu_initialization=True)
    common = {"config": config, "init_method": torch.nn.init.zeros_, "skip_bias_add": False}
    for layer in model.layers:
        layer.heads //= size
        for name in ("query", "key", "value", "up", "out", "down"):
            whole = getattr(layer, name)
            shape, dim = (whole.in_features, whole.out_features), int(name in ("out", "down"))
            if dim:
                part = RowParallelLinear(*shape, bias=True, input_is_parallel=True, **common)
            else:
                part = ColumnParallelLinear(*shape, gather_output=False, **common)
            with torch.no_grad():
                part.weight.copy_(whole.weight.chunk(size, dim)[rank])
                part.bias.copy_(whole.bias if dim else whole.bias.chunk(size)[rank])
            setattr(layer, name, WithoutBias(part))
    return one_process(model)
