"""What does a rank's step look like under NCCL? Two ranks train, and torch's profiler writes both down."""

import json
import tempfile
from pathlib import Path

from .held import random_tokens, running_model


def on_rank(kind, shape, batch, steps=2):
    """On a rank: the Chrome trace, as text, of `steps` steps under "DDP" or "FSDP"."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, record_function

    from allranks.model import loss_of, rank_device

    device = torch.device(rank_device())
    torch.manual_seed(0)
    model = wrapped(kind, running_model(shape, device, torch.bfloat16), device)
    adam = torch.optim.AdamW(model.parameters(), fused=True)
    torch.manual_seed(1 + dist.get_rank())
    tokens = random_tokens(shape, batch, device)

    def step():
        with record_function("forward"):
            loss = loss_of(model, tokens)
        with record_function("backward"):
            loss.backward()
        with record_function("step"):
            adam.step()
            adam.zero_grad()

    for _ in range(3):
        step()
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    dist.barrier()
    with profile(activities=activities) as recorder:
        for _ in range(steps):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        recorder.export_chrome_trace(str(file))
        return json.dumps(json.loads(file.read_text()), separators=(",", ":"))


def wrapped(kind, model, device):
    """The model under torch's DDP, or cut by `fully_shard`, a unit a layer."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    if kind == "DDP":
        return DistributedDataParallel(model)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for module in (*model.layers, model):
        fully_shard(module, mesh=mesh)
    return model
