"""How fast is what the book builds by hand, beside torch's own? Both take the same steps, in turns.

Every function here runs on all ranks and returns {"ours": [seconds a round], "torch": [...]}, after it has
checked that both computed the same. The element type is bf16 on a GPU and fp32 on a CPU.
"""

import warnings

from . import timing
from .held import random_tokens, running_model

LR = 1e-4


def _setting():
    import torch

    from allranks.model import rank_device

    device = torch.device(rank_device())
    on_gpu = device.type == "cuda"
    return device, torch.bfloat16 if on_gpu else torch.float32, 5e-2 if on_gpu else 1e-4


def _same(ours, theirs, tolerance, what):
    """Complain unless two tensors, or two losses, are as close as the element type allows."""
    import torch

    ours, theirs = (torch.as_tensor(x).detach().float() for x in (ours, theirs))
    difference = (ours - theirs).abs().max().item()
    allowed = tolerance * max(1.0, theirs.abs().max().item())
    assert difference <= allowed, (
        f"{what}: ours and torch's differ by {difference:.3g}, more than {allowed:.3g}"
    )


def _new(shape, device, dtype):
    import torch

    torch.manual_seed(0)
    return running_model(shape, device, dtype)


def _mine(shape, batch, device):
    import torch
    import torch.distributed as dist

    torch.manual_seed(1 + dist.get_rank())
    return random_tokens(shape, batch, device)


def _step(model, optimizer, tokens, losses, update=None):
    """A training step; `update()` takes the place of the optimizer's step."""
    from allranks.model import loss_of

    loss = loss_of(model, tokens)
    loss.backward()
    update() if update else optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach())


def data_parallel(shape, batch, rounds):
    """The chapter's bucketed DDP, and `DistributedDataParallel`."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from allranks.parallel.ddp import DDP

    device, dtype, tolerance = _setting()
    tokens, losses = _mine(shape, batch, device), {"ours": [], "torch": []}
    ours, theirs = _new(shape, device, dtype), _new(shape, device, dtype)
    DDP(ours)
    theirs = DistributedDataParallel(theirs)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=LR, fused=True) for m in (ours, theirs)]
    calls = {
        "ours": lambda: _step(ours, optimizers[0], tokens, losses["ours"]),
        "torch": lambda: _step(theirs, optimizers[1], tokens, losses["torch"]),
    }
    taken = timing.interleaved(calls, device, rounds)
    _same(losses["ours"][-1], losses["torch"][-1], tolerance, "loss")
    return taken


def zero_3(shape, batch, rounds):
    """The chapter's ZeRO stage 3, and `fully_shard`, a unit a layer."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from allranks.parallel import zero

    device, dtype, tolerance = _setting()
    tokens, losses = _mine(shape, batch, device), {"ours": [], "torch": []}
    ours, theirs = _new(shape, device, dtype), _new(shape, device, dtype)
    units = zero.shard(zero.Zero3, [*ours.layers, ours])
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for module in (*theirs.layers, theirs):
        fully_shard(module, mesh=mesh)
    mine = torch.optim.AdamW([unit.mine for unit in units], lr=LR, fused=True)
    its = torch.optim.AdamW(theirs.parameters(), lr=LR, fused=True)
    calls = {
        "ours": lambda: _step(ours, mine, tokens, losses["ours"], lambda: zero.step(mine, units)),
        "torch": lambda: _step(theirs, its, tokens, losses["torch"]),
    }
    taken = timing.interleaved(calls, device, rounds)
    _same(losses["ours"][-1], losses["torch"][-1], tolerance, "loss")
    return taken


def tensor_parallel(shape, batch, rounds):
    """The chapter's cut layers, vocabulary and loss, and `parallelize_module` with `loss_parallel`."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor import parallel as tp

    from allranks.parallel.tensor import parallel_loss, parallelize

    device, dtype, tolerance = _setting()
    ranks = dist.get_world_size()
    torch.manual_seed(1)
    tokens, losses = random_tokens(shape, batch, device), {"ours": [], "torch": []}
    ours = parallelize(_new(shape, device, dtype))
    theirs, mesh = _new(shape, device, dtype), init_device_mesh(device.type, (ranks,))
    columns = dict.fromkeys(("query", "key", "value", "up"), tp.ColwiseParallel())
    rows = dict.fromkeys(("out", "down"), tp.RowwiseParallel())
    whole = {"output_layouts": Replicate(), "desired_output_layouts": Replicate()}
    once = {"norm_1": tp.PrepareModuleOutput(**whole, use_local_output=False)}  # one f for q, k and v
    for layer in theirs.layers:
        layer.heads //= ranks
        tp.parallelize_module(layer, mesh, {**columns, **rows, **once})
    words = {"token": tp.RowwiseParallel(input_layouts=Replicate())}
    words["head"] = tp.ColwiseParallel(use_local_output=False)
    tp.parallelize_module(theirs, mesh, words)

    def our_step():
        loss = parallel_loss(ours, tokens)
        loss.backward()
        ours.zero_grad()
        losses["ours"].append(loss.detach())

    def its_step():
        with tp.loss_parallel():
            loss = F.cross_entropy(theirs(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
        theirs.zero_grad()
        losses["torch"].append(loss.detach().full_tensor() if hasattr(loss, "full_tensor") else loss.detach())

    taken = timing.interleaved({"ours": our_step, "torch": its_step}, device, rounds)
    _same(losses["ours"][-1], losses["torch"][-1], tolerance, "loss")
    return taken


def ring(shape, batch, rounds):
    """The chapter's ring attention over all ranks, and on every rank the whole of it by torch's own.

    Forward and backward of one layer's causal attention. With p ranks the ring computes a p-th of it.
    """
    import torch
    import torch.nn.functional as F

    from allranks.parallel.context import part, ring_attention

    device, dtype, tolerance = _setting()
    torch.manual_seed(1)
    size = (batch, shape.heads, shape.sequence, shape.head_width)
    whole = [torch.randn(size, device=device).to(dtype).requires_grad_() for _ in range(3)]
    mine = [part(t.detach(), 2, "zigzag").requires_grad_() for t in whole]
    outputs = {}

    def our_step():
        outputs["ours"] = ring_attention(*mine, True, "zigzag")
        torch.autograd.grad(outputs["ours"].sum(), mine)

    def its_step():
        outputs["torch"] = F.scaled_dot_product_attention(*whole, is_causal=True)
        torch.autograd.grad(outputs["torch"].sum(), whole)

    taken = timing.interleaved({"ours": our_step, "torch": its_step}, device, rounds)
    _same(outputs["ours"], part(outputs["torch"].detach(), 2, "zigzag"), tolerance, "output")
    return taken


PAIRS = {
    "bucketed DDP": (data_parallel, "DistributedDataParallel"),
    "ZeRO-3": (zero_3, "fully_shard"),
    "tensor parallel": (tensor_parallel, "parallelize_module, loss_parallel"),
    "attention ring": (ring, "scaled_dot_product_attention, whole on one rank"),
}


def on_rank(name, shape, batch, rounds):
    """On a rank: one of the pairs."""
    older_names()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about its own
        return PAIRS[name][0](shape, batch, rounds)


def older_names():
    """Let a torch before 2.13, as a machine may have it, know two collectives by their new names."""
    import torch.distributed as dist

    for new, old in (
        ("all_gather_single", "all_gather_into_tensor"),
        ("reduce_scatter_single", "reduce_scatter_tensor"),
    ):
        if not hasattr(dist, new):
            setattr(dist, new, getattr(dist, old))
