"""What did others measure? Every published training run of `runs.csv`, with its layout and its source.

Only facts: what a source prints, and where. A field that a source does not print is empty. `stacks` says how
each source counts and what its software does.
"""

import csv
import re
import zlib
from collections import namedtuple
from functools import cache
from pathlib import Path

from ..hardware import accelerator, link
from ..plan import bus_bandwidth, layout
from ..transformer import decoder, step_flops
from .stacks import STACKS

FIELDS = (
    "id source where date hardware gpus model layers hidden heads kv_heads ffn vocab seq gbs mbs tp pp cp vp"
    " ep dp zero recompute dtype step_seconds tokens_per_s_per_gpu tflops_per_gpu mfu_pct memory_gib notes"
)
WHOLE = FIELDS.split()[5:6] + FIELDS.split()[7:22]
MEASURED = FIELDS.split()[25:30]

HERE = Path(__file__).parent

HBM2E = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md: 96 GB of HBM2e, 2.4 TB/s, 500 W"
H100_500W = accelerator("h100")._replace(
    name="h100-500w", memory=96e9, bandwidth=2.4e12, source=HBM2E, date="2024"
)
LIKE = {"v100-16gb": "v100-32gb"}
MACHINES = {  # generation, links inside and between nodes, devices that share the inner one
    "v100": ("v100", "nvlink-2", "infiniband-edr", 4),
    "a100": ("a100", "nvlink-3", "infiniband-hdr", 8),
    "h100": ("h100", "nvlink-4", "infiniband-ndr", 8),
    "b200": ("b200", "nvlink-5", "infiniband-ndr", 8),
    "b300": ("b300", "nvlink-5", "infiniband-ndr", 8),
    "gb200": ("gb200", "nvlink-5", "infiniband-ndr", 64),
    "gb300": ("gb300", "nvlink-5", "infiniband-ndr", 64),
}
DTYPES = {"mxfp8": "fp8", "fp8-row": "fp8", "nvfp4": "fp4"}


class Collective(namedtuple("Collective", "source hardware op ranks nodes nbytes measured")):
    """One published bus bandwidth, in bytes/s, as nccl-tests counts it; source: a key of the bibliography."""

    @property
    def predicted(self):
        """What `plan.bus_bandwidth` says of it."""
        _, inside, between, _ = MACHINES["h100" if self.hardware == "h200" else self.hardware]
        links = (inside, between, self.nodes, self.hardware != "a100")
        return bus_bandwidth(self.op, self.nbytes, self.ranks, *links)


class Run(namedtuple("Run", FIELDS)):
    """One published measurement; whole numbers, floats and strings, and None where nothing is printed."""

    @property
    def kept_out(self):
        """Whether the fit must not see this run: a third of all setups, by a hash of what they are.

        Runs that differ only in the number of devices, the batch or the version are one setup, so that no
        twin of a run that is kept out is fitted. Llama 3's single run is kept out too.
        """
        setup = (
            self.source, self.model, self.hardware, self.dtype, self.seq, self.mbs, self.tp, self.pp,
            self.cp, self.vp, self.ep, self.zero, self.recompute,
        )  # fmt: skip
        return self.source == "llama3" or zlib.crc32(repr(setup).encode()) % 3 == 0

    @property
    def generation(self):
        """The name of the hardware without memory size and power: "h100"."""
        return self.hardware.partition("-")[0]


@cache
def runs():
    """All `Run`s, in the order of the file: a tuple."""
    with open(HERE / "runs.csv", encoding="utf-8", newline="") as file:
        return tuple(_read(row) for row in csv.DictReader(file))


@cache
def collectives():
    """Measured bus bandwidths, in the order of `collectives.csv`: a tuple of `Collective`s."""
    with open(HERE / "collectives.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    whole = "ranks", "nodes", "bytes"
    return tuple(
        Collective(
            row["source"], row["hardware"], row["op"], *(int(row[name]) for name in whole),
            1e9 * float(row["busbw_gbs"]),
        )
        for row in rows
    )  # fmt: skip


def _read(row):
    values = {name: text or None for name, text in row.items()}
    for name in WHOLE:
        values[name] = values[name] and int(values[name])
    for name in MEASURED:
        values[name] = values[name] and float(values[name])
    return Run(**values)


def machine(run):
    """The `hardware.Accelerator` of a run."""
    name = LIKE.get(run.hardware, run.hardware)
    return H100_500W if name == H100_500W.name else accelerator(name)


def setup(run):
    """Model, `plan.Layout`, accelerator and options of `plan.price` of a run, without rates.

    Raises ValueError with the reason where the planner cannot be asked.
    """
    why = unknown(run)
    if why:
        raise ValueError(why)
    stack = STACKS[run.source]
    experts = {"Qwen3": (128, 8), "GPT O": (128, 4), "GPT-O": (32, 4)}.get(run.model[:5], (1, 1))
    gated = run.model.lower().startswith(("llama", "qwen", "gpt oss", "gpt-oss", "playbook"))
    model = decoder(
        run.layers, run.hidden, run.heads, run.vocab, run.seq, kv_heads=run.kv_heads or run.heads,
        feed_forward=run.ffn, gated=gated, tied=_tied(run),
        biases=not gated, learned_positions=False, experts=experts[0], active_experts=experts[1],
        head_width={"Qwen3": 128, "GPT O": 64, "GPT-O": 64}.get(run.model[:5]),
    )  # fmt: skip
    cp, pp = run.cp or 1, run.pp
    dp = run.dp or run.gpus // (run.tp * pp * cp)
    microbatch = run.mbs or 1
    zero = run.zero or stack.zero
    each = layout(
        tp=run.tp, cp=cp, pp=pp, dp=dp, ep=run.ep or 1, chunks=run.vp or 1, microbatch=microbatch,
        microbatches=run.gbs // (dp * microbatch), zero_stage=_stage(zero), recomputation=_again(run, stack),
    )  # fmt: skip
    _, inside, between, node = MACHINES[run.generation]
    options = {
        "inside": link(inside), "between": link(between), "devices_per_node": node,
        "dtype": DTYPES.get(run.dtype, run.dtype), "overlap": stack.overlap, "recipe": stack.recipe,
        "sequence_parallel": (stack.sequence_parallel and run.tp > 1) or "sequence" in (run.recompute or ""),
        "attended": 0.5 if stack.fused else 1.0, "scattered": True,
        "fused": stack.fused, "dropout": stack.dropout,
    }  # fmt: skip
    return model, each, machine(run), options


def _tied(run):
    """Whether the output layer is the embedding: nanotron's benchmark ties it below 10,000 columns."""
    if run.source == "playbook":  # scripts/scaling_benchmarks.py, create_config
        return run.ffn < 10_000
    return run.source in ("llm-foundry", "bigscience", "bigscience-1b3")


def _stage(zero):
    if zero and zero.startswith(("FSDP", "HSDP")):
        return 2 if "GRAD_OP" in zero or "ZeRO-2" in zero else 3
    return {"ZeRO-0": 0, "none": 0}.get(zero, 1)


def _again(run, stack):
    text = run.recompute or ""
    if text.startswith("full"):
        return "full"
    return "selective" if text.startswith("selective") and not stack.fused else "none"


def unknown(run):
    """Why the planner cannot be asked about this run: a sentence, or None if it can."""
    if run.hardware.startswith("tpu"):
        return "a TPU, whose layout is not in the table"
    if not (run.seq and run.gbs and run.tp and run.pp):
        return "layout or batch not printed"
    if not (run.step_seconds or run.tokens_per_s_per_gpu or run.tflops_per_gpu):
        return "out of memory, or no time printed"
    if not run.layers or not run.heads:
        return "latent attention, state spaces or an unpublished shape"
    if "LoRA" in (run.where + (run.notes or "")):
        return "LoRA: most weights are frozen"
    if (run.zero or "").startswith("HSDP"):
        return "states sharded within a node only"
    if "SUSPECT" in (run.notes or "") and "MFU" not in run.notes:
        return "the layout contradicts the number of devices"
    accumulated = re.search(r"grad accum (\d+)", run.notes or "")
    if accumulated and int(accumulated[1]) * run.dp * run.mbs != run.gbs:
        return "the micro-batches contradict the batch"
    ranks = run.tp * run.pp * (run.cp or 1)
    if run.ep and run.ep > run.gpus // (run.tp * run.pp):
        return "experts spread over the tensor-parallel ranks too"
    if run.gpus % ranks or run.gbs % (run.gpus // ranks * (run.mbs or 1)):
        return "the batch does not divide over the replicas"
    return None


def seconds(run):
    """Measured seconds of a step: as printed, or from tokens/s, or from FLOP/s as the source counts them."""
    if run.step_seconds:
        return run.step_seconds
    if run.tokens_per_s_per_gpu:
        return run.gbs * run.seq / run.gpus / run.tokens_per_s_per_gpu
    model = setup(run)[0]
    counted = step_flops(model, run.gbs, STACKS[run.source].counted)
    return counted / run.gpus / (run.tflops_per_gpu * 1e12)
