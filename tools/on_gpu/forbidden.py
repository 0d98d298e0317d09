"""What do the programs of *What NCCL forbids* do under NCCL itself? Each in a world of its own.

The programs are the notebook's own cells. Without a GPU for every rank this needs NCCL 2.30 and
NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment, so that ranks share one.
"""

import ast
import json
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parent.parent.parent / "notebooks/practice/what_nccl_forbids.ipynb"
LARGE = 2**24  # numbers, of 64 MiB: more than NCCL's buffers hold
ORDERS = ("gradient first", "loss first")
# number, program, ranks, arguments, times; then what repairs it
PROGRAMS = (
    (1, "swap", 2, (), 3),
    (1, "swap", 2, (LARGE,), 2),
    (1, "swap_in_a_batch", 2, (LARGE,), 1),
    (2, "step", 2, (), 3),
    (2, "step_in_order", 2, (), 1),
    (3, "two_groups", 2, (ORDERS,), 5),
    (3, "in_one_order", 2, (), 1),
    (4, "with_tags", 2, (), 3),
    (4, "without_tags", 2, (), 1),
    (5, "first_come", 4, (), 1),
    (5, "by_a_collective", 4, (), 1),
    (6, "read_early", 2, (), 3),
    (6, "read_late", 2, (), 1),
    (7, "reuse", 2, (), 5),
    (7, "wait_and_reuse", 2, (), 1),
    (8, "transposed", 2, (), 1),
    (8, "contiguous", 2, (), 1),
)

REPAIRED = {  # what each has to return
    "swap_in_a_batch": "[1.0, 0.0]",
    "step_in_order": "[(3.0, 21.0), (3.0, 21.0)]",
    "in_one_order": "[(2.0, 6.0), (2.0, 6.0)]",
    "without_tags": "[(10.0, 20.0), (10.0, 20.0)]",
    "by_a_collective": "[14.0, 14.0, 14.0, 14.0]",
    "read_late": "[6.0, 6.0]",
    "wait_and_reuse": "[0.0, 3.0]",
    "contiguous": "[[[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]], [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]]",
}


def programs(path=NOTEBOOK):
    """The functions that a notebook defines, by name, as its kernel would have them."""
    names = {"__name__": "__main__"}
    exec("import torch\nimport torch.distributed as dist", names)
    for cell in json.loads(Path(path).read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            defined = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
            for node in defined:
                exec(ast.unparse(node), names)
    return names


def on_device(program, *args):
    """On a rank: `program`, whose new tensors are on the rank's GPU."""
    import torch

    from allranks.model import rank_device

    torch.set_default_device(rank_device())
    return program(*args)


def outcomes(backend, deadline=20.0, chosen=PROGRAMS, say=print):
    """What each program did: [(number, name, arguments, what it said, how many of how many times)].

    What a program said is what its ranks returned, or the first line of the error that `launch` raised.
    """
    from allranks import launch

    known, found = programs(), []
    for number, name, ranks, args, times in chosen:
        said = {}
        for _ in range(times):
            try:
                result = launch(
                    on_device, known[name], *args, world_size=ranks, backend=backend, timeout=deadline
                )
                text = f"returned {result}"
            except Exception as error:  # a deadline, or what torch or NCCL says
                text = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            said[text] = said.get(text, 0) + 1
        for text, count in said.items():
            found.append((number, name, [str(arg) for arg in args], text, count, times))
            say(found[-1], flush=True)
    return found


def broken(found):
    """What is wrong with these outcomes: the repaired programs that did not do what they should, as lines."""
    return [
        f"{name} {text}, not {REPAIRED[name]}"
        for _, name, _, text, *_ in found
        if name in REPAIRED and text != f"returned {REPAIRED[name]}"
    ]
