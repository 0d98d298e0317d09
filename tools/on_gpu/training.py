"""How long is a training step of the running model, scaled up, and what share of the peak is that?

One device, bf16 by autocast over weights in fp32, AdamW in one kernel, forward and loss compiled as a whole,
nothing recomputed. FLOPs are those of `allranks.transformer`: the causal mask is not discounted.
"""

import gc
import time
from collections import namedtuple

from allranks.transformer import mfu, parameters, step_flops

from . import sizing, timing
from .held import random_tokens, running_model

Run = namedtuple("Run", "seconds first losses peak trace")
Run.__doc__ = """A training: `seconds` of each timed step, of the `first` one (compiling it too), `losses`,
bytes of device memory at its fullest (`peak`, None on a CPU), and the path of a `trace` of one more step, or
None."""
LR = 1e-4


def autocast(device):
    """The context in which products are computed in bf16."""
    import torch

    return torch.autocast(torch.device(device).type, torch.bfloat16)


def run(shape, batch, device, compiler, steps, trace):
    """Train on one batch of tokens again and again, and time it; profile one step more into file `trace`.

    compiler: of `torch.compile`, "inductor", or one that does less and takes less long to do so.
    """
    import torch

    from allranks.model import loss_of

    on_gpu = torch.device(device).type == "cuda"
    torch.manual_seed(0)
    torch.compiler.reset()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    model = running_model(shape, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
    loss = torch.compile(loss_of, backend=compiler, fullgraph=True)
    tokens = random_tokens(shape, batch, device)
    losses = []

    def step():
        with autocast(device):
            found = loss(model, tokens)
        found.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(found.detach())

    start = time.perf_counter()
    step()
    timing.finish(device)
    first = time.perf_counter() - start
    for _ in range(2):
        step()
    taken = [timing.seconds(step, device) for _ in range(steps)]
    peak = torch.cuda.max_memory_allocated() if on_gpu else None
    try:
        _profile(step, device, trace)
    except RuntimeError as error:  # some machines do not let it look
        print(f"the profiler failed: {error}", flush=True)
        trace = None
    return Run(taken, first, [each.item() for each in losses], peak, trace)


def _profile(step, device, path):
    """Write down what the device does in two steps, and keep the second: the first starts the profiler."""
    from torch import profiler

    activities = [profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities = [profiler.ProfilerActivity.CUDA]
    with profiler.profile(activities=activities) as warm:
        step()
        timing.finish(device)
    del warm
    with profiler.profile(activities=activities) as kept:
        step()
        timing.finish(device)
    kept.export_chrome_trace(str(path))


def fill(machine, compiler, steps, trace, say=print, **sizes):
    """Train the largest member of the family that the device's memory allows: (shape, batch, Run).

    If the batch does not fit after all, a smaller one is tried, and so on.
    """
    import torch

    shape = sizing.largest(machine.memory, **sizes)
    batch = sizing.largest_batch(shape, machine.memory)
    size = f"{parameters(shape):,} parameters in {shape.layers} layers of {shape.hidden}"
    say(f"{size}; a batch of {batch} is predicted to fit")

    def give_back():
        gc.collect()
        torch.compiler.reset()
        if machine.device == "cuda":
            torch.cuda.empty_cache()

    def attempt(size):
        say(f"a batch of {size} × {shape.sequence} tokens")
        return run(shape, size, machine.device, compiler, steps, trace)

    batch, done = sizing.first_that_fits(attempt, batch, torch.OutOfMemoryError, give_back)
    give_back()
    return shape, batch, done


def utilisation(shape, batch, seconds, peak):
    """What a step of `seconds` is: {tokens a second, model FLOP/s, MFU of `peak`}."""
    return {
        "tokens_per_second": batch * shape.sequence / seconds,
        "flops_per_second": step_flops(shape, batch) / seconds,
        "mfu": mfu(shape, batch, seconds, 1, peak),
    }


def products(shape, batch):
    """The matrix products with weights of a step: [(rows, inner, columns, how often)].

    Each y = xW of forward comes again twice in backward, for the gradients of x and of W.
    """
    n, h, f, v = batch * shape.sequence, shape.hidden, shape.feed_forward, shape.vocabulary
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    found = []
    for inner, columns, times in (
        (h, queries, shape.layers),
        (h, keys, 2 * shape.layers),
        (queries, h, shape.layers),
        (h, f, shape.layers),
        (f, h, shape.layers),
        (h, v, 1),
    ):
        found += [(n, inner, columns, times), (n, columns, inner, times), (inner, n, columns, times)]
    return found


def seconds_of_products(shape, batch, device):
    """Seconds that these products take alone, in bf16, one after the other: what nothing else can beat."""
    import torch

    alone, total = {}, 0
    for rows, inner, columns, times in products(shape, batch):
        if (rows, inner, columns) not in alone:
            a = torch.randn(rows, inner, device=device, dtype=torch.bfloat16)
            b = torch.randn(inner, columns, device=device, dtype=torch.bfloat16)
            taken = timing.best(lambda a=a, b=b: a @ b, device, rounds=2, lasting=0.05)
            alone[rows, inner, columns] = taken
            del a, b
        total += times * alone[rows, inner, columns]
    return total
