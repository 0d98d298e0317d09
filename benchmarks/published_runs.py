"""How well does the planner predict what others measured? Fit its constants, and print its errors.

    python benchmarks/published_runs.py fit      # writes allranks/plan/fitted.py; 20 s on an idle machine
    python benchmarks/published_runs.py table    # the tables of benchmarks/README.md; seconds

The fit sees dense runs that are not kept out, without those of the Playbook that stalled or spread a matrix
over nodes; of mixtures it fits one number. It minimises a robust loss of log(predicted / measured), and draws
every constant weakly to where it starts, so that one with few runs stays near it.
"""

import argparse
import math
from collections import OrderedDict
from pathlib import Path
from statistics import mean, median

from allranks import published
from allranks.plan.fitted import FITTED
from allranks.plan.reached import names
from allranks.published.predict import LIKE, WIDTHS, card_of, has_experts, step_of

HERE = Path(__file__).parent
START = {
    "traffic": 8.0,
    "launch eager": 2e-4,
    "launch fused": 1e-4,
    "misaligned": 4.0,
    "chunked": 0.6,
    "contention": 0.3,
    "contention flat": 0.3,
    "card h100-500w": 1.0,
    "card a100-80gb early": 1.0,
    "slack": 0.004,
}


def fit():
    import numpy
    from scipy.optimize import least_squares

    start, rows = OrderedDict(START), []
    for run in published.runs():
        if published.unknown(run) is None:
            named = names(
                LIKE.get(run.source, run.source),
                run.generation,
                WIDTHS[run.dtype],
                has_experts(run),
                card_of(run),
            )
            for meaning, name in named.items():
                plain = run.generation in ("a100", "h100") and WIDTHS[run.dtype] == "16"
                if meaning != "card" and not (meaning == "width" and plain):
                    start.setdefault(name, 0.5 if meaning == "attention" else 1.0)
            if used(run):
                rows.append((run, published.seconds(run)))

    def constants(x):
        return {name: value * math.exp(each) for (name, value), each in zip(start.items(), x, strict=True)}

    def residuals(x):
        now = constants(x)
        for share in ("chunked", "contention", "contention flat"):
            now[share] = min(1.0, now[share])
        errors = [math.log(step_of(run, now).seconds / measured) for run, measured in rows]
        return numpy.array(errors + [0.05 * each for each in x])

    guess = [math.log(FITTED.get(name, value) / value) for name, value in start.items()]
    found = least_squares(residuals, guess, loss="soft_l1", f_scale=0.08, max_nfev=12)
    written = [
        '"""Made by `python benchmarks/published_runs.py fit`: `reached` says what each constant is."""'
    ]
    written += ["", "FITTED = {"]
    for name, value in sorted(constants(found.x).items()):
        written.append(f'    "{name}": {float(f"{value:.4g}")!r},')
    path = HERE.parent / "allranks/plan/fitted.py"
    path.write_text("\n".join([*written, "}", ""]), encoding="utf-8")
    print(f"{len(start)} constants from {len(rows)} runs: {path.name}")


def used(run):
    """Whether the fit sees a run."""
    return not run.kept_out and published.kind(run) in ("dense", "experts")


def table():
    made, reasons = published.predictions()
    print("| source | generation | runs | mean | median | kept out | mean | median | bias |")
    print("|---|---|---|---|---|---|---|---|---|")
    groups = OrderedDict()
    for each in made:
        kind = published.kind(each.run)
        where = each.run.source + ("" if kind == "dense" else f", {kind}")
        groups.setdefault((where, each.run.generation), []).append(each)
    for (where, generation), members in groups.items():
        print(f"| {where} | {generation} | {row(members)} |")
    for name, kinds in (("all dense", ("dense",)), ("all", ("dense", "experts", "stalled", "tp over nodes"))):
        print(f"| **{name}** | | {row([each for each in made if published.kind(each.run) in kinds])} |")
    print(f"\n{len(made)} of {len(made) + len(reasons)} runs; the others:\n")
    for why in sorted(set(reasons.values())):
        print(f"- {list(reasons.values()).count(why)}: {why}")
    print("\n" + orders(made))
    print("\n" + memories(made))
    print("\n" + bandwidths())


def row(members):
    errors = {out: [abs(each.error) for each in members if each.run.kept_out == out] for out in (False, True)}
    cells = []
    for some in errors.values():
        cells += [str(len(some)), f"{mean(some):.1%}", f"{median(some):.1%}"] if some else ["0", "", ""]
    return " | ".join([*cells, f"{median(each.error for each in members):+.1%}"])


def orders(made):
    """τ of the layouts within each group of runs that differ in layout only, of three layouts or more.

    And of those pairs that differ by more than repeated measurements do.
    """
    found = published.groups(made)
    apart = published.spread(found)
    lines = [
        "| group | layouts | Kendall's τ | pairs that differ more | τ of these |",
        "|---|---|---|---|---|",
    ]
    for key, layouts in found.items():
        right, pairs = published.ordered(layouts)
        clear, further = published.ordered(layouts, apart)
        τ, other = 2 * right / pairs - 1, f"{2 * clear / further - 1:.2f}" if further else ""
        lines.append(
            f"| {key[0]}, {key[1]}, {key[2]} devices | {len(layouts)} | {τ:.2f} | {further} | {other} |"
        )
    (τ, pairs), (clear, further) = published.order(found), published.order(found, apart)
    lines.append(f"| **all {pairs} pairs** | | {τ:.2f} | {further} | {clear:.2f} |")
    lines.append(f"\nRepeated measurements differ by up to {apart:.1%}.")
    return "\n".join(lines)


def memories(made):
    groups = OrderedDict()
    for each in made:
        if each.run.memory_gib:
            kind = published.kind(each.run)
            where = each.run.source + ("" if kind == "dense" else f", {kind}")
            groups.setdefault(where, []).append(published.memory_error(each))
    lines = ["| memory: source | runs | mean error | median | bias |", "|---|---|---|---|---|"]
    for source, errors in groups.items():
        sizes = [abs(error) for error in errors]
        lines.append(
            f"| {source} | {len(errors)} | {mean(sizes):.1%} | {median(sizes):.1%} | {median(errors):+.1%} |"
        )
    return "\n".join(lines)


def bandwidths():
    groups = OrderedDict()
    for each in published.collectives():
        size = "32 MiB or more" if each.nbytes >= 2**25 else "less than 32 MiB"
        where = f"{each.hardware}, {'several nodes' if each.nodes > 1 else 'one node'}"
        groups.setdefault((each.source, where, size), []).append(abs(each.predicted / each.measured - 1))
    lines = ["| bus bandwidth: source | where | message | measured | mean error | median |"]
    lines.append("|---|---|---|---|---|---|")
    for key, sizes in groups.items():
        lines.append(f"| {' | '.join(key)} | {len(sizes)} | {mean(sizes):.0%} | {median(sizes):.0%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["fit", "table"])
    {"fit": fit, "table": table}[parser.parse_args().command]()
