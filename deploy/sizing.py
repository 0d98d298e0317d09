"""How many readers does a machine take, what fits on its GPUs, and how many GPU hours does a class cost?

The tables of deploy/README.md: `python deploy/sizing.py` prints them, `--write` puts them into the page, and
a test fails when the page says anything else. Memory, cores and times are those of hub/values.yaml; what fits
is the planner's.
"""

import argparse
from pathlib import Path

import yaml

from allranks import hardware, plan, transformer

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
VALUES = yaml.safe_load((HERE / "hub" / "values.yaml").read_text())
READER = VALUES["singleuser"]
NODES = [(8, 32), (16, 64), (32, 128), (64, 256)]  # cores, GiB of memory
KEPT = (1, 4)  # cores and GiB that Kubernetes and the system keep of a node
GPUS = [("a100-40gb", "nvlink-3"), ("a100-80gb", "nvlink-3"), ("h100", "nvlink-4"), ("h200", "nvlink-4")]
FILLED = 0.9  # of a GPU's memory; CUDA, NCCL and what the allocator cannot use take the rest
MODELS = sorted(transformer.PRESETS, key=lambda name: transformer.parameters(transformer.PRESETS[name]))
SHARING = [1, 2, 4, 7]  # readers on a GPU; MIG divides one into seven at most
CLASS = [(12, 90), (24, 90), (24, 180)]  # readers, minutes


def gib(quantity):
    """GiB of a quantity as JupyterHub writes it; its G is 2³⁰ bytes."""
    if not quantity.endswith("G"):
        raise ValueError(f"{quantity} is not a number of G")
    return float(quantity[:-1])


def gpus(profile):
    """How many GPUs a profile has."""
    limits = profile.get("kubespawner_override", {}).get("extra_resource_limits", {})
    return int(limits.get("nvidia.com/gpu", 0))


def table(head, rows):
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def readers():
    """How many readers with a profile fit on a node, by what they are guaranteed."""
    memory, cores = gib(READER["memory"]["guarantee"]), READER["cpu"]["guarantee"]
    rows = []
    for node_cores, node_memory in NODES:
        by_memory = int((node_memory - KEPT[1]) // memory)
        by_cores = int((node_cores - KEPT[0]) // cores)
        rows.append(
            [node_cores, f"{node_memory} GiB", by_memory, by_cores, f"**{min(by_memory, by_cores)}**"]
        )
    return table(["cores", "memory", "readers by memory", "readers by cores", "readers"], rows)


def largest(accelerator, link, devices, sharing=1):
    """The largest model of a paper that the planner can train there, one sequence a GPU and step."""
    for name in reversed(MODELS):
        found = plan.plans(
            transformer.PRESETS[name], accelerator, devices, devices,
            capacity=FILLED * accelerator.memory / sharing, fused=True,
            inside=hardware.link(link), between=hardware.link("infiniband-ndr"),
        )  # fmt: skip
        if found:
            return name
    return "none"


def fits():
    """The largest model for every kind of GPU and every profile that has some."""
    counts = [gpus(profile) for profile in READER["profileList"] if gpus(profile)]
    rows = []
    for name, link in GPUS:
        accelerator = hardware.accelerator(name)
        rows.append([name, *(largest(accelerator, link, count) for count in counts)])
    return table(["GPU", *(f"{count} GPU{'s' * (count > 1)}" for count in counts)], rows)


def shared():
    """The largest model for every kind of GPU and number of readers who share one."""
    rows = []
    for name, link in GPUS:
        accelerator = hardware.accelerator(name)
        rows.append([name, *(largest(accelerator, link, 1, sharing) for sharing in SHARING)])
    return table(["GPU", *(f"{sharing} reader{'s' * (sharing > 1)}" for sharing in SHARING)], rows)


def cost():
    """GPU hours of a class in each profile, if all log out, and if nobody does and the culler has to."""
    late = (VALUES["cull"]["timeout"] + VALUES["cull"]["every"]) / 3600
    rows = []
    for people, minutes in CLASS:
        for profile in READER["profileList"]:
            count = gpus(profile)
            if count:
                used, idle = people * count * minutes / 60, people * count * late
                hours = [f"{used:.0f}", f"{used + idle:.0f}"]
                rows.append([people, minutes, profile["display_name"], people * count, *hours])
    return table(["readers", "minutes", "profile", "GPUs at once", "GPU hours", "if nobody logs out"], rows)


TABLES = {"readers": readers, "fits": fits, "shared": shared, "cost": cost}


def written():
    """The page, with the tables as they are computed now."""
    text = PAGE.read_text()
    for name, make in TABLES.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(start)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"{PAGE.name} has no place for the table {name}: {start}{end.strip()}")
        text = before + start + "\n" + make() + "\n\n" + end + after
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    if parser.parse_args().write:
        PAGE.write_text(written())
    else:
        print(*(make() for make in TABLES.values()), sep="\n\n")
