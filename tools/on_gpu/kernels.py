"""What does a kernel cost on this device? Products by their rows and by their cut, attention, a mere call.

The shapes are those of a layer of Llama 2 70B: 8,192 wide, 64 heads of 128, 8 of keys and values, and two
products up to 28,672 and one down. On a CPU everything is divided by `shrink`.
"""

from . import timing

HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, HEAD_WIDTH = 8192, 28672, 64, 8, 128


def _random(device, *shape):
    import torch

    return torch.randn(*shape, device=device).to(torch.bfloat16)


def by_rows(device, rows, shrink=1):
    """Seconds of x @ W for so many rows of x, W being 8,192 × 28,672: [(rows, seconds, FLOPs, bytes)].

    One row is a sequence that writes a token; W is read once, whoever shares it.
    """
    import torch

    from allranks.roofline import product

    inner, columns = HIDDEN // shrink, FEED_FORWARD // shrink
    w, found = _random(device, inner, columns), []
    for n in rows:
        x, out = _random(device, n, inner), _random(device, n, columns)
        taken = timing.best(lambda x=x, out=out: torch.mm(x, w, out=out), device)
        found.append((n, taken, *product(n, inner, columns, 2)))
    return found


def layer_products(ranks, shrink=1):
    """(inner, columns) of the four products of a layer on one of so many tensor-parallel ranks."""
    h, f, head = HIDDEN // shrink, FEED_FORWARD // shrink, HEAD_WIDTH // shrink
    queries, keys = HEADS * head // ranks, max(KV_HEADS // ranks, 1) * head
    return [(h, queries + 2 * keys), (queries, h), (h, 2 * f // ranks), (f // ranks, h)]


def by_cut(device, rows, ranks, shrink=1):
    """Seconds of a layer's products on one of t tensor-parallel ranks: [(rows, t, seconds)].

    Nothing is communicated: what t ranks lose here is what thin products lose.
    """
    import torch

    found = []
    for n in rows:
        for t in ranks:
            total = 0.0
            for inner, columns in layer_products(t, shrink):
                x, w = _random(device, n, inner), _random(device, inner, columns)
                out = _random(device, n, columns)
                total += timing.best(lambda x=x, w=w, out=out: torch.mm(x, w, out=out), device)
            found.append((n, t, total))
    return found


def attention(device, sequences, tokens, heads=16, width=128):
    """Forward and backward of causal attention over `tokens` tokens: [(sequence, how, seconds, bytes)].

    how: "scores" writes them to memory, "tiles" does not. bytes: at its fullest, beyond the inputs; None for
    both where memory runs out, and on a CPU, which does not count them.
    """
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found = []
    for s in sequences:
        q, k, v = (_random(device, tokens // s, heads, s, width).requires_grad_() for _ in range(3))
        for how, backend in (("scores", SDPBackend.MATH), ("tiles", SDPBackend.FLASH_ATTENTION)):

            def call(q=q, k=k, v=v, backend=backend):
                with sdpa_kernel(backend):
                    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                torch.autograd.grad(out, (q, k, v), out)

            try:
                found.append((s, how, *_seconds_and_bytes(call, device)))
            except torch.OutOfMemoryError:
                found.append((s, how, None, None))
                torch.cuda.empty_cache()
    return found


def _seconds_and_bytes(call, device):
    import torch

    if torch.device(device).type != "cuda":
        return timing.best(call, device), None
    call()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    timing.finish(device)
    return timing.best(call, device), torch.cuda.max_memory_allocated() - before


def launches(device, sizes, calls=200):
    """Seconds of adding 1 to so many numbers, called one by one and replayed as a CUDA graph.

    [(elements, seconds called, seconds replayed)]; None where there are no graphs, on a CPU.
    """
    import torch

    found = []
    for n in sizes:
        x = torch.zeros(n, device=device)

        def run(x=x):
            for _ in range(calls):
                x.add_(1.0)

        called = timing.best(run, device) / calls
        replayed = None
        if torch.device(device).type == "cuda":
            replayed = timing.best(graph_of(run).replay, device) / calls
        found.append((n, called, replayed))
    return found


def graph_of(run):
    """The kernels that `run` starts, as a CUDA graph."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):  # what is made at a first call is not part of it
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph
