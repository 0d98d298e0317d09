"""Record the traces of *Where did the step go?*: one training program, healthy and with five faults.

Four gloo ranks train the digits model with torch's DDP, and torch.profiler records two steps. Writes
allranks/profiles/examples.py, a few kB a trace: `python benchmarks/traces.py`, with names of faults if only
these are to be recorded again.
"""

import json
import os
import platform
import sys
import tempfile
import textwrap
import time
from datetime import date
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

from allranks import launch, profiles
from allranks.model import GPT, digits, loss_of

FAULTS = ("none", "slow rank", "data loader", "no overlap", "small messages", "host sync")
FILE = Path(profiles.__file__).with_name("examples.py")
RUNS = 5
LAYERS, HIDDEN, BATCH, STEPS = 2, 256, 8, 2

HEAD = '''"""What did torch.profiler see of a healthy program and of five faulty ones? Recorded, not written.

{about}
"""

import json

from .compact import unpacked

ABOUT = (
{sentence}
)
EXAMPLES = {names}
RECORDED = """
{lines}
"""


def example(name):
    """The traces of one of `EXAMPLES`, a `Recorded` for each rank, on one clock; else a ValueError."""
    if name not in EXAMPLES:
        raise ValueError(f"name must be one of {{', '.join(EXAMPLES)}}, not {{name!r}}")
    return unpacked(json.loads(RECORDED.strip().split("\\n\\n")[EXAMPLES.index(name)].replace("\\n", "")))
'''


def trained(fault, data):
    """Train on one rank with a fault, and return the trace of the last steps."""
    torch.manual_seed(0)
    rank = dist.get_rank()
    model = GPT(layers=LAYERS, hidden=HIDDEN)
    ddp = DistributedDataParallel(model, bucket_cap_mb=1e-6 if fault == "small messages" else 2)
    adam = torch.optim.AdamW(model.parameters())
    rows = BATCH * (4 if fault == "slow rank" and rank == 2 else 1)
    if fault == "host sync":
        for layer in model.layers:
            layer.register_forward_hook(norm_of_all)

    def step():
        with record_function("data"):
            batch = data[torch.randint(len(data), (rows,))]
            if fault == "data loader":
                time.sleep(0.3)
        with record_function("forward"):
            loss = loss_of(model if fault == "no overlap" else ddp, batch)
        with record_function("backward"):
            loss.backward()
            if fault == "no overlap":
                average(model)
        with record_function("step"):
            adam.step()
            adam.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as recorder:
        dist.barrier()
        for _ in range(STEPS):
            step()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        recorder.export_chrome_trace(str(file))
        return json.loads(file.read_text())


def norm_of_all(layer, inputs, output):
    """Log the norm of an activation over all ranks: the host waits for it in every layer."""
    norm = output.detach().square().sum()
    dist.all_reduce(norm)
    return norm.item() * 0 + output


def average(model):
    """Average all gradients in one message, once backward is over."""
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat, op=dist.ReduceOp.AVG)
    for p, piece in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True):
        p.grad.copy_(piece.view_as(p))


def main():
    """Record every fault, several times, and keep the fastest that nothing else made late."""
    torch.set_num_threads(1)
    stored = []
    for fault in FAULTS:
        if sys.argv[1:] and fault not in sys.argv[1:]:
            stored.append(FILE.read_text(encoding="utf-8").split('"""')[3].strip().split("\n\n")[len(stored)])
            continue
        runs = []
        for _ in range(RUNS):
            traces = launch(trained, fault, digits(), world_size=4, backend="gloo")
            recorded = [profiles.read(trace) for trace in traces]
            recorded = profiles.aligned(recorded, profiles.hosts_of(traces, recorded))
            runs.append((profiles.shares(recorded)[0].whole, recorded))
        runs.sort(key=lambda run: run[0])
        late = 2 if fault == "slow rank" else None  # on a busy machine another rank may be held up by chance
        seconds, recorded = next(run for run in runs if profiles.straggler(run[1]) == late)
        print(fault, f"{seconds:.3f} s", profiles.straggler(recorded))
        for share in profiles.shares(recorded):
            print("  ", share.rank, *(f"{part / share.whole:.0%}" for part in share[2:]))
        whole = json.dumps(profiles.packed(recorded, joined=400), separators=(",", ":"))
        stored.append("\n".join(whole[at : at + 108] for at in range(0, len(whole), 108)))
    about = (
        f"Four gloo ranks on {os.cpu_count()} cores of an {platform.machine()} machine without a GPU, which "
        f"did other work too; torch {torch.__version__.partition('+')[0]}, {date.today():%d %B %Y}: two "
        f"steps of the digits model with {LAYERS} layers of width {HIDDEN}, {BATCH} sequences a rank, "
        "under DDP. "
        "`benchmarks/traces.py` recorded the traces."
    )
    sentence = "\n".join(f"    {json.dumps(line + ' ')}" for line in textwrap.wrap(about, 98))
    names = f"({', '.join(json.dumps(fault) for fault in FAULTS)})"
    wrapped = "\n".join(textwrap.wrap(about, 108))
    text = HEAD.format(about=wrapped, sentence=sentence, names=names, lines="\n\n".join(stored))
    FILE.write_text(text, encoding="utf-8")
    print(f"{FILE.name}: {len(text):,} bytes")


if __name__ == "__main__":
    main()
