"""What did Megatron Core and torchtitan do? `benchmarks/frameworks.py` recorded it."""

import json
from importlib import resources


def recorded():
    """A dict: "versions"; "megatron", as `train` returns it; "groups", of each configuration and framework.

    groups: {configuration: {"world_size": …, framework: {axis: [[rank, …], …]}}}, the groups of each axis.
    """
    return json.loads((resources.files(__package__) / "recorded.json").read_text(encoding="utf-8"))
