"""What did this machine do? All results as JSON, which the book reads, and a page made of nothing but that.

Each part of the check replaces its own section, so that parts can be run one by one.
"""

import json
import re
from pathlib import Path

from .sections import SECTIONS, TITLES

ROOT = Path(__file__).resolve().parent.parent.parent
COMMITTED, DRY = ROOT / "allranks" / "measured", ROOT / "_build" / "gpu_check"
PAGES = ROOT / "benchmarks" / "gpu"  # of what is committed; of a dry run they are beside the JSON
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
    text = json.dumps(everything, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda flat: re.sub(r"\n\s*", " ", flat[0]), text)  # a row a line
    path.write_text(text + "\n", encoding="utf-8")
    page_of(path).write_text(page(everything), encoding="utf-8")
    return everything


def page_of(path):
    """The file of a machine's page, by that of its results."""
    page = path.with_suffix(".md")
    return PAGES / page.name if path.parent == COMMITTED else page


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
