"""Where does the time of a step go? A profiler's trace, sorted into a few kinds of work, and put into words.

On a GPU the events are kernels; between them it is idle. On a CPU they are operators, and each counts
without those that it calls.
"""

import json
import re

KINDS = {
    "communication": r"nccl|gloo|c10d::",
    "attention": r"flash|fmha|scaled_dot_product|sdpa|attention",
    "optimizer": r"adam|multi_tensor_apply|foreach",
    "matrix products": r"gemm|nvjet|cutlass|xmma|cublas|splitk|triton_tem|\b(add)?mm\b|\bbmm\b|matmul",
    "copies": r"memcpy|memset",
}
REST = "norms, activations, loss"  # what is none of the others: elementwise kernels and reductions
FUSED = r"triton_(poi|per|red|for)_|cpp_fused"  # inductor's; named after all that they are fused with
IDLE = "idle"
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def kind_of(name):
    """The kind of work that a kernel or operator of this name does; the first whose pattern is in it."""
    name = name.lower()
    if re.search(FUSED, name):
        return REST
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), REST)


def read(path):
    """The events of a Chrome trace that take time: [(category, thread, name, start, seconds)]."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return [
        (e["cat"], e.get("tid"), e["name"], e["ts"] / 1e6, e["dur"] / 1e6)
        for e in events
        if e.get("ph") == "X" and e.get("cat") in (*ON_GPU, "cpu_op")
    ]


def alone(events):
    """Of nested events of one thread, each one's seconds without those inside it: [(name, seconds)]."""
    found, open_ones = [], []
    for name, start, taken in sorted(events, key=lambda e: (e[1], -e[2])):
        while open_ones and start >= open_ones[-1][1]:
            open_ones.pop()
        if open_ones:
            found[open_ones[-1][0]][1] -= taken
        open_ones.append((len(found), start + taken))
        found.append([name, taken])
    return [(name, max(0.0, taken)) for name, taken in found]


def busy(spans):
    """Seconds covered by at least one of the spans (start, end)."""
    covered, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered


def seconds_by_kind(events, step):
    """Seconds of each kind of work in a step that takes `step` seconds: {kind: seconds}, idle among them.

    Where kernels overlap, what they take together is counted once, in proportion.
    """
    kernels = [(name, start, taken) for cat, _, name, start, taken in events if cat in ON_GPU]
    if kernels:
        works = [(name, taken) for name, _, taken in kernels]
        covered = busy((start, start + taken) for _, start, taken in kernels)
    else:
        threads = {thread for _, thread, *_ in events}
        works = [
            work
            for thread in threads
            for work in alone([(n, s, d) for _, tid, n, s, d in events if tid == thread])
        ]
        covered = sum(taken for _, taken in works)
    found = dict.fromkeys([*KINDS, REST], 0.0)
    for name, taken in works:
        found[kind_of(name)] += taken
    total = sum(found.values())
    scale = min(covered, step) / total if total else 0.0
    found = {kind: taken * scale for kind, taken in found.items() if taken}
    return {**found, IDLE: max(0.0, step - sum(found.values()))}


def unnamed(events, most=5):
    """The names among the rest that take most: [(name, seconds)]; a kind may have to learn one of them."""
    totals = {}
    for cat, _, name, _, taken in events:
        if kind_of(name) == REST and (cat in ON_GPU or not any(c in ON_GPU for c, *_ in events)):
            totals[name] = totals.get(name, 0.0) + taken
    return sorted(totals.items(), key=lambda item: -item[1])[:most]


def milliseconds(seconds):
    """Seconds as a text in ms, three digits."""
    return f"{1e3 * seconds:,.0f} ms" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def percent(part):
    """A share as a text."""
    return f"{100 * part:.1f} %"


def paragraph(step, by_kind, ideal, products, peak_name):
    """In words: where the rest of the peak goes. Every number is measured or computed.

    step: its seconds. by_kind: as `seconds_by_kind` gives, or None if the profiler saw nothing. ideal:
    seconds of its FLOPs at the peak. products: seconds of its products with weights, measured alone.
    peak_name: what the peak is.
    """
    sentences = [
        f"A step takes {milliseconds(step)}.",
        f"At {peak_name} its model FLOPs would take {milliseconds(ideal)}, "
        f"which is an MFU of {percent(ideal / step)}.",
        f"Its products with weights, run alone at their shapes, take {milliseconds(products)}: "
        f"if they were all, the MFU would be {percent(ideal / products)}.",
    ]
    if by_kind is None:
        return " ".join([*sentences, "The profiler saw no kernel, so what the rest is stays unknown."])
    ranked = sorted(by_kind.items(), key=lambda item: -item[1])
    shares = [f"{kind} {milliseconds(taken)} ({percent(taken / step)})" for kind, taken in ranked]
    sentences.append(f"The step is spent on {', '.join(shares)}.")
    at_work = by_kind.get("matrix products", 0.0)
    if at_work:
        sentences.append(
            f"In it the products take {at_work / products:.2f} times as long as alone, "
            f"and all else {milliseconds(step - at_work)}."
        )
    return " ".join(sentences)
