"""What did this machine do? All results as JSON, and a page made of nothing but that.

Each part of the check replaces its own section, so that parts can be run one by one.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COMMITTED, DRY = ROOT / "benchmarks" / "gpu", ROOT / "_build" / "gpu_check"
DRY_RUN = (
    "**A dry run on a CPU.** It shows that the check runs, with small sizes; its numbers say nothing about "
    "any GPU, and are not to be committed."
)


def slug(name):
    """A device's name as a file's: `NVIDIA H100 80GB HBM3` is nvidia-h100-80gb-hbm3."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def path_of(machine, folder=None):
    """The JSON file of a machine: committed for a GPU, among what is built for a dry run."""
    if machine.device == "cpu":
        return Path(folder or DRY) / "cpu-dry-run.json"
    count = f"{machine.gpus}x-" if machine.gpus > 1 else ""
    return Path(folder or COMMITTED) / f"{count}{slug(machine.name)}.json"


def add(path, machine, software, part, results):
    """Put the results of a part into the file, with what they depend on, and write its page; return all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    everything = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"parts": {}}
    everything["machine"] = machine._asdict()
    everything["parts"][part] = {"software": software, **results}
    path.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(page(everything), encoding="utf-8")
    return everything


def rows(heads, lines):
    """A Markdown table; the first column is text, the others are numbers."""
    marks = [":---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [heads, marks, *lines])


def size(nbytes):
    """Bytes, in binary units where they are whole ones."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= factor:
            return f"{nbytes / factor:g} {unit}"
    return f"{nbytes} B"


def page(everything):
    """The page of a machine."""
    machine = everything["machine"]
    text = [f"# {machine['name']}", "Made by `make gpu-check`; see [how to read it](README.md)."]
    if machine["device"] == "cpu":
        text.append(DRY_RUN)
    else:
        text.append(f"GPUs used: {machine['gpus']}, {machine['memory'] / 1e9:.1f} GB each.")
    for part, section in SECTIONS.items():
        if part in everything["parts"]:
            results = everything["parts"][part]
            versions = ", ".join(f"{name} {version}" for name, version in results["software"].items())
            text += [f"## {TITLES[part]}", *section(results)]
            if results["problems"]:
                text.append("**Not as it should be:**\n\n" + "\n".join(f"- {p}" for p in results["problems"]))
            text.append(f"{results['date']}, {results['seconds']:.0f} s; {versions}.")
    return "\n\n".join(text) + "\n"


def _suites(results):
    heads = ("suite", "passed", "failed", "skipped", "seconds")
    lines = [
        (s["what"], s["passed"], s["failed"], s["skipped"], f"{s['seconds']:.0f}") for s in results["suites"]
    ]
    yield rows(heads, lines)


def _memory(results):
    def verdict(row):
        if row["slack"] is None:
            return f"{row['counted'] / row['formula']:.2f} of it"
        difference = row["counted"] - row["formula"]
        return "equal" if difference == 0 else f"{difference:+,} B of ±{row['slack']:,} B"

    heads = ("what", "formula, B", "counted, B", "given by the allocator, B", "counted is")
    lines = [
        (
            r["what"],
            f"{r['formula']:,}",
            f"{r['counted']:,}",
            f"{r['given']:,}" if r["given"] else "–",
            verdict(r),
        )
        for r in results["rows"]
    ]
    yield rows(heads, lines)


def _speed(results):
    yield "Copies within the device, bytes read and written:"
    yield rows(("tensor", "GB/s"), [(size(n), f"{rate / 1e9:,.4g}") for n, rate in results["copy"]])
    yield "Products of two square matrices of random numbers, TFLOP/s; the best of each in the last row:"
    sizes = list(dict.fromkeys(n for _, n, _ in results["matmul"]))
    dtypes = list(dict.fromkeys(name for name, *_ in results["matmul"]))
    found = {(name, n): rate for name, n, rate in results["matmul"]}
    lines = [(n, *(f"{found[name, n] / 1e12:,.4g}" for name in dtypes)) for n in sizes]
    best = [max(found[name, n] for n in sizes) for name in dtypes]
    published = [results["published"].get(name) for name in dtypes]
    lines.append(("best", *(f"**{rate / 1e12:,.4g}**" for rate in best)))
    shares = (f"{100 * r / p:.1f} %" if p else "–" for r, p in zip(best, published, strict=True))
    lines.append(("of the published peak", *shares))
    yield rows(("size", *dtypes), lines)
    ranks = results["ranks"]
    if "all_reduce" in results:
        moved = (
            "" if ranks > 1 else " One rank has nobody to send to: nothing moves, the time is the call's own."
        )
        how = (
            f"{ranks} ranks under {results['backend']}"
            if ranks > 1
            else f"one rank under {results['backend']}"
        )
        yield f"All-reduce on {how}, bus bandwidth as nccl-tests has it.{moved}"
        lines = [
            (size(n), f"{1e6 * s:,.4g}", f"{bus / 1e9:,.4g}" if ranks > 1 else "–")
            for n, s, bus in results["all_reduce"]
        ]
        yield rows(("tensor", "µs", "GB/s"), lines)
    yield (
        f"What the book builds by hand beside torch's own, on {ranks} ranks: medians of "
        f"{results['rounds']} rounds in turns; a ratio below 1 means that ours is faster."
    )
    lines = [
        (
            f"{p['ours']} : {p['torch']}",
            *(f"{1e3 * p[k]:,.4g}" for k in ("ours_seconds", "torch_seconds")),
            f"{p['ratio']:.2f}",
        )
        if "ratio" in p
        else (f"{p['ours']} : {p['torch']}", "failed", "failed", "–")
        for p in results["pairs"]
    ]
    yield rows(("ours : torch's", "ours, ms", "torch's, ms", "ratio"), lines)


def _kernels(results):
    yield "TO BE WRITTEN"


def _training(results):
    lines = [
        ("parameters", f"{results['parameters']:,}"),
        ("layers, hidden, heads", "{layers}, {hidden}, {heads}".format(**results["shape"])),
        ("vocabulary, sequence", "{vocabulary}, {sequence}".format(**results["shape"])),
        ("batch", results["batch"]),
        ("first step, compiling it too", f"{results['first_seconds']:.3g} s"),
        ("step, median", f"{1e3 * results['step_seconds']:,.4g} ms"),
        ("tokens a second", f"{results['tokens_per_second']:,.0f}"),
        ("model TFLOP/s", f"{results['flops_per_second'] / 1e12:,.4g}"),
        (f"MFU, of {results['peak_name']}", f"**{100 * results['mfu']:.1f} %**"),
        ("of the best product measured here", f"{100 * results['of_best_product']:.1f} %"),
        ("memory predicted", f"{results['predicted_bytes'] / 1e9:.3g} GB"),
        ("memory at its fullest", f"{results['peak_bytes'] / 1e9:.3g} GB" if results["peak_bytes"] else "–"),
        ("loss, first and last step", "{:.3f}, {:.3f}".format(*results["losses"])),
    ]
    yield rows(("training step", ""), lines)
    yield results["paragraph"]
    if results["unnamed"]:
        heads = ("what takes most of “norms, activations, loss”", "ms")
        yield rows(heads, [(f"`{name[:80]}`", f"{1e3 * s:.3g}") for name, s in results["unnamed"]])


TITLES = {
    "launch": "Ranks and their faults",
    "notebooks": "Notebooks",
    "memory": "Memory, counted",
    "speed": "Ceilings, and ours beside torch's",
    "kernels": "What a CPU cannot show",
    "training": "A model that fills the device",
}
SECTIONS = {
    "launch": _suites,
    "notebooks": _suites,
    "memory": _memory,
    "speed": _speed,
    "kernels": _kernels,
    "training": _training,
}
