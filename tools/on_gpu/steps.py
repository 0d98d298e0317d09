"""What do the parts of a step cost on a device? F, B and W, recomputation, Adam, and a decoded token."""

from . import kernels, timing
from .held import random_tokens, running_model


def passes(device, hidden, heads, rows, sequence, layers=4):
    """Seconds of a layer's forward, of B (its input's gradient), of W (its weights'), and of both in one.

    The layer is the running model's, in bf16, cut as *Zero bubble* cuts it; `layers` of them in a row.
    Returns {"F": …, "B": …, "W": …, "backward": …}, each for one layer.
    """
    import torch

    from allranks.model import Layer
    from allranks.parallel.zero_bubble import split, weight_grad

    later = []
    with torch.device(device):
        stacks = [torch.nn.Sequential(*(Layer(hidden, heads) for _ in range(layers))) for _ in range(2)]
        x = torch.randn(rows, sequence, hidden).to(torch.bfloat16).requires_grad_()
    whole, halves = (stack.to(torch.bfloat16) for stack in stacks)
    split(halves, later)
    taken = {"F": [], "B": [], "W": [], "backward": []}

    def timed(what, call):
        taken[what].append(timing.seconds(call, device) / layers)

    for _ in range(8):
        kept = []
        timed("F", lambda kept=kept: kept.append(whole(x)))
        timed("backward", lambda kept=kept: kept[0].backward(kept[0].detach()))
        kept = [halves(x)]
        timed("B", lambda kept=kept: kept[0].backward(kept[0].detach()))
        timed("W", lambda: weight_grad(later))
        for stack in (whole, halves):
            stack.zero_grad()
    return {what: timing.median(seconds[3:]) for what, seconds in taken.items()}


def recomputation(device, shape, batch):
    """Seconds and bytes of forward and backward, by how many layers are computed again in backward.

    [(layers recomputed, seconds, bytes at the fullest beyond weights and gradients; None on a CPU)].
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    from allranks.model import loss_of

    on_gpu, found = torch.device(device).type == "cuda", []
    tokens = random_tokens(shape, batch, device)
    for again in (0, shape.layers // 2, shape.layers):
        model = running_model(shape, device, torch.bfloat16)
        for layer in model.layers[:again]:
            run = layer.forward
            layer.forward = lambda x, run=run: checkpoint(run, x, use_reentrant=False)

        def call(model=model):
            loss_of(model, tokens).backward()

        call()
        timing.finish(device)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        call()
        timing.finish(device)
        held = torch.cuda.max_memory_allocated() - before if on_gpu else None
        found.append((again, timing.best(call, device), held))
        del model
    return found


def adam(device, parameters, tensors=100):
    """Seconds of AdamW's step on so many fp32 parameters: {"a kernel each": …, "foreach": …, "fused": …}."""
    import torch

    found = {}
    for how, options in (
        ("one operation at a time", {"foreach": False}),
        ("foreach", {"foreach": True}),
        ("fused", {"fused": True}),
    ):
        weights = [torch.randn(parameters // tensors, device=device).requires_grad_() for _ in range(tensors)]
        for w in weights:
            w.grad = torch.randn_like(w)
        found[how] = timing.best(torch.optim.AdamW(weights, **options).step, device)
        del weights
    return found


def decoding(device, shape, context, batches):
    """Seconds of one token for every sequence, `context` tokens being in the cache, bf16.

    Called operation by operation, and replayed as a CUDA graph: [(batch, called, replayed)]; None for a graph
    on a CPU, and for both where memory runs out.
    """
    import torch

    model = running_model(shape, device, torch.bfloat16)
    found = []
    for batch in batches:
        try:
            cache = [
                torch.randn(2, batch, shape.heads, context, shape.head_width, device=device).bfloat16()
                for _ in model.layers
            ]
            tokens = random_tokens(shape, batch, device)[:, :1]
            with torch.no_grad():

                def call(cache=cache, tokens=tokens):
                    return _next(model, cache, tokens)

                called, replayed = timing.best(call, device), None
                if torch.device(device).type == "cuda":
                    replayed = timing.best(kernels.graph_of(call).replay, device)
        except torch.OutOfMemoryError:
            called = replayed = None
        found.append((batch, called, replayed))
        cache = tokens = None
        if torch.device(device).type == "cuda":
            torch.cuda.empty_cache()
    return found


def _next(model, cache, tokens):
    """Logits of the token that takes the last place of the cache."""
    import torch.nn.functional as F

    x = model.token(tokens) + model.position.weight[cache[0].shape[3] - 1]
    for layer, (keys, values) in zip(model.layers, cache, strict=True):
        y = layer.norm_1(x)
        q, k, v = (
            w(y).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
            for w in (layer.query, layer.key, layer.value)
        )
        keys[:, :, -1:], values[:, :, -1:] = k, v
        y = F.scaled_dot_product_attention(q, keys, values)
        x = x + layer.out(y.transpose(1, 2).flatten(-2))
        x = x + layer.down(F.gelu(layer.up(layer.norm_2(x))))
    return model.head(model.norm(x))
