"""What do NCCL's rules cost on CPU ranks? The same program with and without them, in turns.

python benchmarks/rules.py

What notebooks take, `make test` writes to _build/reports: notebooks.xml and under_rules.xml.
"""

import statistics
import time

import torch
import torch.distributed as dist

from allranks import launch, model

ROUNDS, OPERATIONS, STEPS = 9, 100, 10


def nothing():
    return dist.get_rank()


def all_reduces(elements):
    """Seconds for one all-reduce of float32, of OPERATIONS one after another."""
    t = torch.zeros(elements)
    dist.all_reduce(t)
    start = time.perf_counter()
    for _ in range(OPERATIONS):
        dist.all_reduce(t)
    return (time.perf_counter() - start) / OPERATIONS


def ddp_steps():
    """Seconds for one step of the running model under DDP."""
    torch.manual_seed(0)
    ddp = torch.nn.parallel.DistributedDataParallel(model.GPT())
    optimizer, tokens = torch.optim.AdamW(ddp.parameters()), model.digits()[:16]
    for step in range(STEPS + 2):
        if step == 2:
            start = time.perf_counter()
        model.loss_of(ddp, tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.perf_counter() - start) / STEPS


def seconds(fn, *args, rules):
    start = time.perf_counter()
    results = launch(fn, *args, world_size=4, rules=rules)
    return time.perf_counter() - start if fn is nothing else max(results)


def compare(name, fn, *args):
    times = {None: [], "nccl": []}
    for _ in range(ROUNDS):
        for rules, found in times.items():
            found.append(seconds(fn, *args, rules=rules))
    plain, ruled = (statistics.median(found) for found in times.values())
    print(f"| {name} | {plain * 1e3:.1f} ms | {ruled * 1e3:.1f} ms | {ruled / plain:.1f} |", flush=True)


if __name__ == "__main__":
    print("| four ranks | gloo | under the rules | ratio |\n|---|---|---|---|")
    launch(nothing, world_size=4)
    compare("a launch", nothing)
    for elements in (1_000, 1_000_000):
        compare(f"an all-reduce of {elements:,} float32", all_reduces, elements)
    compare("a step of DDP, running model", ddp_steps)
