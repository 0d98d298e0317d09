"""How do five libraries average gradients? Each recipe is what its user writes."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from allranks import private


def one_process(model):
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step():
        adam.step()
        adam.zero_grad()

    return model, torch.Tensor.backward, step


def by_hand(model):
    model, backward, update = one_process(model)

    def step():
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        update()

    return model, backward, step


def ddp(model):
    return one_process(DistributedDataParallel(model))


def fsdp2(model):
    for layer in model.layers:
        fully_shard(layer)
    return one_process(fully_shard(model))


def accelerate(model, **options):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, **options)
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, adam = accelerator.prepare(model, adam)

    def step():
        adam.step()
        adam.zero_grad()

    return model, accelerator.backward, step


def deepspeed(model, **zero):
    config = {
        "train_batch_size": 24,
        "gradient_clipping": 0.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "torch_adam": True}},
        "zero_optimization": zero,
    }
    engine, *_ = private.deepspeed().initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    return engine, engine.backward, engine.step
