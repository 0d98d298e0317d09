"""What does a page about a machine say of each part of the check? Markdown, made of its results alone."""


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
    yield "x @ W, W being 8,192 × 28,672 in bf16, by the rows of x:"
    lines = [
        (n, f"{1e6 * s:,.4g}", f"{flops / s / 1e12:,.3g}", f"{nbytes / s / 1e9:,.4g}")
        for n, s, flops, nbytes in results["rows"]
    ]
    yield rows(("rows", "µs", "TFLOP/s", "GB/s"), lines)
    yield (
        "The products of a layer of Llama 2 70B on one of t tensor-parallel ranks, and how near that is to a "
        "t-th of the whole layer's time; nothing is communicated:"
    )
    whole = {n: s for n, t, s in results["cut"] if t == 1}
    lines = [(n, t, f"{1e6 * s:,.4g}", f"{100 * whole[n] / t / s:.0f} %") for n, t, s in results["cut"]]
    yield rows(("rows", "t", "µs", "of the ideal"), lines)
    yield "Forward and backward of causal attention, 16 heads of 128 over 16,384 tokens:"
    lines = [
        (f"{how}, sequences of {s:,}", _or_none(seconds, 1e3), _or_none(nbytes, 1e-9))
        for s, how, seconds, nbytes in results["attention"]
    ]
    yield rows(("attention", "ms", "GB beside inputs"), lines)
    yield "Adding 1 to so many numbers, called from Python and replayed as a CUDA graph:"
    lines = [
        (f"{n:,}", _or_none(called, 1e6), _or_none(replayed, 1e6))
        for n, called, replayed in results["launches"]
    ]
    yield rows(("numbers", "called, µs", "replayed, µs"), lines)
    yield "Copies between host and device, GB/s:"
    lines = [
        (f"{size(n)} {direction}, {'pinned' if pinned else 'pageable'}", f"{rate / 1e9:,.3g}")
        for n, pinned, direction, rate in results["link"]
    ]
    yield rows(("copy", "GB/s"), lines)
    yield "Products and copies that take as long, alone and on two streams at once:"
    yield rows(("what", "ms"), [(what, f"{1e3 * s:,.4g}") for what, s in results["beside"].items()])
    yield "The passes of the running model's layer, {hidden} wide, {rows} × {sequence} tokens:".format(
        **results["layer"]
    )
    yield rows(("pass", "ms"), [(what, f"{1e3 * s:,.4g}") for what, s in results["passes"].items()])
    yield "Forward and backward with some layers recomputed:"
    lines = [(n, f"{1e3 * s:,.4g}", _or_none(nbytes, 1e-9)) for n, s, nbytes in results["recomputation"]]
    yield rows(("layers recomputed", "ms", "GB beside weights and gradients"), lines)
    yield f"AdamW's step on {results['parameters']:,} parameters in fp32:"
    lines = [
        (how, f"{1e3 * s:,.4g}", f"{28 * results['parameters'] / s / 1e9:,.4g}")
        for how, s in results["adam"].items()
    ]
    yield rows(("AdamW", "ms", "GB/s, at 28 bytes a parameter"), lines)
    writer, context = results["writer"]
    yield (
        f"One token of {writer['layers']} layers, {writer['hidden']} wide, {context:,} tokens in the cache, "
        "in ms:"
    )
    lines = [
        (n, _or_none(called, 1e3), _or_none(replayed, 1e3)) for n, called, replayed in results["decoding"]
    ]
    yield rows(("sequences", "called", "replayed"), lines)


def _or_none(number, factor):
    return "–" if number is None else f"{factor * number:,.4g}"


def _nccl(results):
    if not results["outcomes"]:
        yield results["why"]
        return
    yield results["how"]
    lines = [
        (f"{number}. {name}({', '.join(args)})", f"{count} of {times}", said[:160])
        for number, name, args, said, count, times in results["outcomes"]
    ]
    heads = ("program", "times", "what it did")
    yield rows(heads, lines)


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
    "nccl": "What NCCL forbids, under NCCL",
}
SECTIONS = {
    "launch": _suites,
    "notebooks": _suites,
    "memory": _memory,
    "speed": _speed,
    "kernels": _kernels,
    "training": _training,
    "nccl": _nccl,
}
