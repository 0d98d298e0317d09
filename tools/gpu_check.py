#!/usr/bin/env python
"""Check the book on this machine's GPUs: `make gpu-check`, or `python tools/gpu_check.py speed training`.

Without a GPU it says so, and runs dry: the same code on the CPU, with small sizes. Each part takes less than
ten minutes on one GPU and can be run alone; what it finds goes into the page of this machine.
"""

import argparse
import os
import sys
import time
import traceback
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from on_gpu import machine as machines  # noqa: E402
from on_gpu import table  # noqa: E402
from on_gpu.parts import RUN  # noqa: E402

PARTS = ("launch", "notebooks", "memory", "speed", "kernels", "training", "nccl")


def check(machine, parts, folder=None):
    """Run parts and write the page; return the problems, each as a line."""
    path, said = table.path_of(machine, folder), []
    scratch = table.DRY if folder is None else Path(folder)
    scratch.mkdir(parents=True, exist_ok=True)
    if machine.device == "cpu":
        import torch

        torch.set_num_threads(1)  # as on a rank
    for part in parts:
        print(f"==== {part}", flush=True)
        start = time.monotonic()
        try:
            machines.need(part)
            results = RUN[part](machine, scratch)
        except machines.NotPossible as error:
            said.append(f"{part}: {error}")
            print(said[-1], flush=True)
            continue
        except Exception as error:  # the other parts can still run
            traceback.print_exc()
            first, *_ = [*str(error).strip().splitlines(), ""]
            said.append(f"{part} broke off: {type(error).__name__}: {first}")
            continue
        results |= {"date": date.today().isoformat(), "seconds": time.monotonic() - start}
        table.add(path, machine, machines.software(machine), part, results)
        said += [f"{part}: {problem}" for problem in results["problems"]]
        print(f"==== {part}: {len(results['problems'])} problems, {results['seconds']:.0f} s", flush=True)
    print(f"results: {path.with_suffix('.md')}")
    return said


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all if left out")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="a GPU if there is one; cpu: the dry run")
    parser.add_argument("--gpus", type=int, help="how many GPUs to use; all if left out")
    parser.add_argument("--to", type=Path, help="the folder of the results; benchmarks/gpu if left out")
    options = parser.parse_args()
    folders = [str(ROOT), str(ROOT / "tools"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)  # nothing has to be installed, for the ranks neither
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    try:
        machine = machines.find(options.device, options.gpus)
        if machine.device == "cpu" and options.device is None:
            print(f"No GPU to check: {machines.reason()} This is a dry run on the CPU.", flush=True)
    except machines.NotPossible as error:
        sys.exit(f"gpu-check: {error}")
    print(f"{machine.name}", flush=True)
    if problems := check(machine, options.parts or PARTS, options.to):
        sys.exit("gpu-check found problems:\n" + "\n".join(f"- {each}" for each in problems))


if __name__ == "__main__":
    main()
