"""What does a layout of H100s cost? Memory and seconds, for the problems that let a reader choose one.

A node has eight GPUs, NVLink 4 between them, and a card of 400 Gbit/s for each. A layout says tp, pp and dp.
"""

from allranks import hardware, memory, topology, transformer
from allranks import plan as planner

NVLINK, CARD = hardware.link("nvlink-4"), hardware.link("infiniband-ndr")
H100 = hardware.ACCELERATORS["h100"]
GPUS = 64  # of each plan


def computing_seconds(model, sequences, recomputation="none"):
    """Seconds that 64 GPUs compute in a step of so many sequences, at half their peak."""
    return transformer.step_flops(model, sequences, recomputation) / GPUS / (hardware.peak("h100") / 2)


def sending_seconds(model, sizes, order, microbatches, **options):
    """Seconds that a rank sends along each axis; `order` names the axes from the fastest to the slowest."""
    world_size = sizes["tp"] * sizes["pp"] * sizes["dp"]
    levels = (
        topology.Level("node", 8, NVLINK.α, NVLINK.bandwidth, 1),
        topology.Level("cluster", world_size, CARD.α, CARD.bandwidth, 1),
    )
    ordered = tuple((axis, sizes[axis]) for axis in order)
    axes = topology.place(ordered, levels, model, microbatches, **options)
    return {axis.axis: axis.seconds for axis in axes}


# ---- GPT-3 in tensor and pipeline parallelism, at the end of the part on model parallelism ----

GPT3 = transformer.PRESETS["gpt3-175b"]
MICROBATCHES = 64  # in a step


def layout_bytes(tp, pp):
    """The `Breakdown` of the fullest of the 64 GPUs that train GPT-3."""
    return memory.training_bytes(
        GPT3,
        tensor_parallel=tp,
        pipeline_parallel=pp,
        microbatches=MICROBATCHES,
        sequence_parallel=True,
        recomputation="selective",
    )


def layout_seconds(tp, pp):
    """(computing, sending along tp) for all micro-batches of a step of GPT-3 on 64 GPUs, without waiting."""
    traffic = topology.traffic(GPT3, {"tp": tp, "pp": pp}, MICROBATCHES, sequence_parallel=True)
    link = NVLINK if tp <= 8 else CARD
    sending = next(each.sent for each in traffic if each.axis == "tp") * link.β
    return computing_seconds(GPT3, MICROBATCHES, "selective"), sending


# ---- Llama 3 70B along all three axes, at the end of the part on combining them ----

LARGE = transformer.PRESETS["llama3-70b"]
LINKS = {"inside": NVLINK, "between": CARD}
BATCH, ROOM = 128, 0.9 * H100.memory  # sequences in a step; bytes on each GPU


def priced(tp, pp, dp, zero_stage=1):
    """The `plan.Plan` of Llama 3 70B on 64 H100s, one sequence in each micro-batch."""
    sizes = {"tp": tp, "pp": pp, "dp": dp, "zero_stage": zero_stage}
    layout = planner.layout(**sizes, microbatches=BATCH // dp)
    return planner.price(LARGE, layout, H100, dropout=False, fused=True, **LINKS)


def legal(tp, pp, dp):
    """Whether `priced` has an answer for these sizes."""
    sizes = tp, pp, dp
    if not all(isinstance(size, int) and size > 0 for size in sizes) or tp * pp * dp != GPUS or BATCH % dp:
        return False
    return planner.illegal(LARGE, planner.layout(tp=tp, pp=pp, dp=dp)) is None


def fastest():
    """(tp, pp, dp) of the fastest layout that leaves a tenth of the memory free."""
    sizes = planner.divisors(GPUS)
    tried = [(tp, pp, GPUS // tp // pp) for tp in sizes for pp in sizes if GPUS % (tp * pp) == 0]
    fitting = [each for each in tried if legal(*each) and priced(*each).memory.total <= ROOM]
    return min(fitting, key=lambda each: priced(*each).seconds)
