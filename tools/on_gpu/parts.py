"""The parts of the check: what each measures, on a GPU and, with small sizes, on the CPU.

Each takes the machine and a folder, and returns its results, among them `problems`, each as a line.
"""

import os
import traceback
from pathlib import Path

from . import machine as machines
from . import suites

LIMIT = 540  # seconds that a suite of tests may take
KIB, MIB, GIB = 2**10, 2**20, 2**30


def run_suites(machine, chosen, folder):
    """Run suites of tests: their results, and what failed."""
    done = [suites.run(suite, machine, folder, LIMIT) for suite in chosen]
    problems = [f"{test}: {message}" for each in done for test, message in each.failures]
    problems += [f"{each.what}: no test passed" for each in done if not each.passed and not each.failures]
    return {"suites": [each._asdict() for each in done], "problems": problems}


def launch_part(machine, folder):
    """The launch tests: ranks on the device, and every fault."""
    return run_suites(machine, suites.launch_suites(machine), folder)


def notebooks_part(machine, folder):
    """The notebooks of the book."""
    return run_suites(machine, suites.notebook_suites(machine), folder)


def memory_part(machine, folder):
    """The memory formulas beside what the device held."""
    from allranks.transformer import decoder

    from . import held
    from .megatron_layer import Layer

    shape, batch = decoder(8, 1024, 8, 8192, 1024, tied=False), 4
    if machine.device == "cpu":
        shape, batch = decoder(2, 32, 2, 64, 16, tied=False), 2
    problems = []

    def failed(what, error):
        problems.append(f"{what}: {type(error).__name__}: {error}")

    found = held.rows(shape, batch, machine.device, Layer, failed)
    problems += [
        f"{r.what}: the formula says {r.formula:,} B, counted are {r.counted:,} B"
        for r in found
        if held.agrees(r) is False
    ]
    return {"rows": [r._asdict() for r in found], "problems": problems}


def speed_part(machine, folder):
    """Ceilings of the device, and what the book builds by hand beside torch's own."""
    from allranks import launch
    from allranks.transformer import decoder

    from . import ceilings, taught, timing

    device, (ranks, backend) = machine.device, machines.world(machine)
    where = {"world_size": ranks, "backend": backend, "timeout": 300.0}
    if device == "cuda":
        copies, sides = [64 * MIB, GIB, 4 * GIB], [1024, 2048, 4096, 8192, 16384]
        sums, rounds = [8 * KIB, 256 * KIB, 4 * MIB, 64 * MIB, 256 * MIB, GIB], 15
        model, batch = decoder(8, 2048, 16, 50304, 1024, tied=False), 8
        attention = (decoder(1, 2048, 16, 50304, 8192, tied=False), 1)
    else:
        copies, sides, sums, rounds = [64 * KIB, MIB], [64, 128], [8 * KIB, 256 * KIB], 3
        model, batch = decoder(2, 32, 4, 64, 16, tied=False), 2
        attention = (decoder(1, 32, 4, 64, 32, tied=False), 1)
    found = {
        "copy": ceilings.copy_ceiling(device, copies),
        "matmul": ceilings.matmul_ceiling(device, sides),
        "published": published_peaks(machine),
        "ranks": ranks,
        "backend": backend,
        "rounds": rounds,
        "pairs": [],
        "problems": [],
    }
    give_back(machine)
    try:
        on_ranks = launch(ceilings.all_reduce_seconds, sums, **where)
        found["all_reduce"] = ceilings.bus_bandwidths(on_ranks)
    except Exception as error:  # the rest can still be measured
        found["problems"].append(f"all-reduce: {error}")
    for name, (_, theirs) in taught.PAIRS.items():
        pair = {"ours": name, "torch": theirs}
        shape, sequences = attention if name == "attention ring" else (model, batch)
        print(f"{name} beside {theirs}", flush=True)
        try:
            on_ranks = launch(taught.on_rank, name, shape, sequences, rounds, **where)
            ours, its = (timing.slowest([rank[who] for rank in on_ranks]) for who in ("ours", "torch"))
            pair["ours_seconds"], pair["torch_seconds"] = timing.median(ours), timing.median(its)
            pair["ratio"] = timing.ratio_of_medians(ours, its)
        except Exception as error:
            found["problems"].append(f"{name}: {error}")
        found["pairs"].append(pair)
    return found


def kernels_part(machine, folder):
    """What pages of the book ask and a CPU cannot answer: products, attention, the link, parts of a step."""
    from allranks.transformer import decoder

    from . import kernels, link, steps

    device, on_gpu = machine.device, machine.device == "cuda"
    if on_gpu:
        shrink, rows, ranks, several = 1, [2**k for k in range(15)], [1, 2, 4, 8, 16], [16, 512, 4096]
        sequences, tokens, heads, width = [1024, 2048, 4096, 8192, 16384], 16384, 16, 128
        sizes, nbytes, copied, side = [1, 10**4, 10**6, 10**7, 10**8], [2**20, 2**26, 2**30], 2**28, 8192
        layer = {"hidden": 4096, "heads": 32, "rows": 4, "sequence": 2048}
        model, batch, parameters = decoder(16, 2048, 16, 50304, 2048, tied=False), 8, 10**9
        writer, context = decoder(24, 2048, 16, 50304, 1024, tied=False), 1024
        batches = [1, 2, 4, 8, 16, 32, 64, 128]
    else:
        shrink, rows, ranks, several = 64, [1, 4], [1, 2], [4]
        sequences, tokens, heads, width = [16, 32], 64, 2, 16
        sizes, nbytes, copied, side = [1, 1000], [2**16], 2**16, 64
        layer = {"hidden": 32, "heads": 2, "rows": 2, "sequence": 16}
        model, batch, parameters = decoder(2, 32, 2, 64, 16, tied=False), 2, 10**4
        writer, context, batches = decoder(2, 32, 2, 64, 16, tied=False), 16, [1, 2]
    questions = {
        "rows": lambda: kernels.by_rows(device, rows, shrink),
        "cut": lambda: kernels.by_cut(device, several, ranks, shrink),
        "attention": lambda: kernels.attention(device, sequences, tokens, heads, width),
        "launches": lambda: kernels.launches(device, sizes),
        "link": lambda: link.copies(device, nbytes),
        "beside": lambda: link.beside_products(device, copied, side),
        "passes": lambda: steps.passes(device, **layer),
        "recomputation": lambda: steps.recomputation(device, model, batch),
        "adam": lambda: steps.adam(device, parameters),
        "decoding": lambda: steps.decoding(device, writer, context, batches),
    }
    found = {
        "layer": layer,
        "model": [model._asdict(), batch],
        "parameters": parameters,
        "writer": [writer._asdict(), context],
        "problems": [],
    }
    for name, ask in questions.items():
        print(name, flush=True)
        try:
            found[name] = ask()
        except Exception as error:  # the others can still be asked
            traceback.print_exc()
            found["problems"].append(f"{name}: {type(error).__name__}: {error}")
        give_back(machine)
    return found


def training_part(machine, folder):
    """A model that fills the device: seconds a step, MFU, and where the rest goes."""
    from allranks.transformer import parameters, step_flops

    from . import ceilings, sizing, timing, training, where

    if machine.device == "cuda":
        compiler, steps, sides, sizes = "inductor", 10, [8192, 16384], {}
    else:
        compiler, steps, sides = "aot_eager", 3, [128]
        sizes = {"width": 16, "sequence": 32, "vocabulary": 128}
    (best, _), *_ = ceilings.best_of(ceilings.matmul_ceiling(machine.device, sides, ["bf16"])).values()
    give_back(machine)
    with ceilings.float32_precision("high"):
        shape, batch, run = training.fill(machine, compiler, steps, Path(folder) / "trace.json", **sizes)
    peak, peak_name = best, "the best product measured here, for want of a published peak"
    if published := published_peaks(machine).get("bf16"):
        peak, peak_name = published, "the published peak"
    step = timing.median(run.seconds)
    events = where.read(run.trace) if run.trace else []
    seen = any(category in where.ON_GPU or machine.device == "cpu" for category, *_ in events)
    by_kind = where.seconds_by_kind(events, step) if seen else None
    alone = training.seconds_of_products(shape, batch, machine.device)
    problems = [] if run.losses[-1] < run.losses[0] else [f"the loss does not fall: {run.losses}"]
    if not seen:
        problems.append("the profiler saw no kernel")
    return {
        "shape": shape._asdict(),
        "parameters": parameters(shape),
        "batch": batch,
        "compiler": compiler,
        "first_seconds": run.first,
        "step_seconds": step,
        "seconds_of_steps": run.seconds,
        **training.utilisation(shape, batch, step, peak),
        "peak": peak,
        "peak_name": peak_name,
        "of_best_product": step_flops(shape, batch) / step / best,
        "predicted_bytes": sizing.step_bytes(shape, batch),
        "peak_bytes": run.peak,
        "losses": [run.losses[0], run.losses[-1]],
        "products_seconds": alone,
        "by_kind": by_kind,
        "unnamed": where.unnamed(events),
        "paragraph": where.paragraph(step, by_kind, step_flops(shape, batch) / peak, alone, peak_name),
        "problems": problems,
    }


def nccl_part(machine, folder):
    """The programs of *What NCCL forbids* under NCCL, and the steps of two ranks; needs four ranks."""
    import json

    from allranks import launch, profiles
    from allranks.launch import plan
    from allranks.transformer import decoder

    from . import forbidden, traced

    if machine.device == "cpu":
        backend, shape, batch = "gloo", decoder(2, 32, 2, 64, 16, tied=False), 2
        chosen = [each for each in forbidden.PROGRAMS if each[1] in forbidden.REPAIRED]
    elif machine.gpus >= 4 or os.environ.get(plan.SHARE) == "1":
        backend, chosen = "nccl", forbidden.PROGRAMS
        shape, batch = decoder(8, 1024, 8, 50304, 1024, tied=False), 8
    else:
        why = f"Not run: it takes four GPUs, or NCCL 2.30 and {plan.SHARE}=1, with which ranks share one."
        return {"outcomes": [], "why": why, "problems": []}
    found = forbidden.outcomes(backend, chosen=chosen)
    traces = [
        json.loads(text)
        for text in launch(traced.on_rank, "DDP", shape, batch, world_size=2, backend=backend, timeout=120.0)
    ]
    own = "a GPU each" if machine.gpus >= 4 else "one GPU for all"
    return {
        "how": f"Ranks under {backend}" + (f", {own}." if machine.device == "cuda" else "."),
        "outcomes": found,
        "model": [shape._asdict(), batch],
        "trace": profiles.packed(profiles.same_origin([profiles.read(each) for each in traces]), joined=2),
        "problems": forbidden.broken(found),
    }


def published_peaks(machine):
    """FLOP/s of the device by dtype, by `allranks.hardware`; empty if it has no such device."""
    from allranks import hardware

    return hardware.accelerator(machine.accelerator).peak if machine.accelerator else {}


def give_back(machine):
    """Let ranks have the memory that this process has kept."""
    if machine.device == "cuda":
        import torch

        torch.cuda.empty_cache()


RUN = {
    "launch": launch_part,
    "notebooks": notebooks_part,
    "memory": memory_part,
    "speed": speed_part,
    "kernels": kernels_part,
    "training": training_part,
    "nccl": nccl_part,
}
