"""How were ten famous models trained? Layout, hours and stated utilisation of each, with their sources.

Every number that a source prints is named by its entry in the ledger of claims and read there, so none is
typed twice. Shapes and layouts are those that these entries describe. What nobody published is None.
"""

from collections import OrderedDict, namedtuple

from .. import hardware, plan, schedules, topology, transformer
from ..claims import find, printed

FIELDS = "year accelerator devices model visited tokens hours stated layout axes links recipe why failures"


class Case(namedtuple("Case", FIELDS)):
    """One training run.

    year: of the publication. accelerator: in `hardware.ACCELERATORS`. devices, visited (parameters that a
    token visits), tokens, stated (the MFU), failures: entries of the ledger; hours: pairs (devices, hours) of
    entries, where "1" are hours of all devices together. model: a `Transformer`, layout: a `plan.Layout`,
    if the planner knows such ones. axes: the product in words. links: inside a node and between nodes. recipe:
    options of the planner. why: in a few words.
    """


def number(id):
    """The number that the source of this entry of the ledger prints; 1 for "1"."""
    return 1 if id == "1" else float(printed.parse(find(id).printed).value)


BLOOM = transformer.decoder(70, 14336, 112, 250880, 2048, learned_positions=False)
SMOLLM3 = transformer.llama(36, 2048, 16, 128256, 4096, 4, 11008)._replace(tied=True)
OLMO2 = transformer.llama(40, 5120, 40, 100352, 4096, 40, 13824)

OLD = {"sequence_parallel": False, "overlap": 0.0, "recipe": "copied-20"}
NEW = {"dropout": False, "fused": True}


def layout(**sizes):
    return plan.layout(**sizes)


CASES = OrderedDict(
    [
        (
            "GShard 600B",
            Case(
                2020, "tpu-v3", "gshard-cores", None, None, None, None, None, None, "experts 2048, dp 2048",
                None, {}, "one expert of each layer on each core", None,
            ),
        ),
        (
            "Megatron-Turing 530B",
            Case(
                2022, "a100-80gb", None, transformer.PRESETS["mt-nlg-530b"], None, "mtnlg-tokens", None,
                "palm-table3-mtnlg",
                layout(tp=8, pp=35, dp=8, microbatches=240, zero_stage=0, recomputation="full"),
                "tp 8 · pp 35 · dp 8", ("nvlink-3", "infiniband-hdr"), OLD,
                "tp stops at the node; 35 divides 105 layers", None,
            ),
        ),
        (
            "PaLM 540B",
            Case(
                2022, "tpu-v4", "palm-chips", None, "palm-parameters", "palm-tokens",
                (("palm-chips", "palm-hours-two-pods"), ("palm-pod", "palm-hours-one-pod")), "palm-mfu", None,
                "tp 12 · fsdp 256 · dp 2", None, {}, "a torus needs no pipeline", "palm-skips",
            ),
        ),
        (
            "BLOOM 176B",
            Case(
                2022, "a100-80gb", "bloom-gpus", BLOOM, "bloom-parameters", "bloom-tokens",
                (("1", "bloom-hours"),), "bloom-tflops",
                layout(tp=4, pp=12, dp=8, microbatch=2, microbatches=128, zero_stage=1, recomputation="full"),
                "tp 4 · pp 12 · dp 8", ("nvlink-3", "ethernet-100"), OLD,
                "the fastest of those tried; ZeRO-1 needs dp", "bloom-failures",
            ),
        ),
        (
            "Llama 3 405B",
            Case(
                2024, "h100", "llama3-table4-gpus-16384-gpus-gpus", transformer.PRESETS["llama3-405b"],
                "llama3-405b-parameters", "llama3-tokens", (("1", "llama3-hours"),),
                "llama3-table4-mfu-16384-gpus-mfu",
                layout(tp=8, pp=16, dp=128, microbatches=16, zero_stage=2, chunks=8),
                "tp 8 · pp 16 · dp 128", ("nvlink-4", "roce-400"), dict(NEW, order=plan.LLAMA_ORDER),
                "tp in a node, pieces of one layer", "llama3-unexpected",
            ),
        ),
        (
            "DeepSeek-V3",
            Case(
                2024, "h100", "deepseek-gpus", None, "deepseek-active", "deepseek-tokens",
                (("1", "deepseek-hours"),), "deepseek-mfu", None, "pp 16 · dp 128 · ep 64", None, {},
                "no tp: slow NVLink, narrow experts", None,
            ),
        ),
        (
            "OLMo 2 13B",
            Case(
                2025, "h100", None, OLMO2, "olmo2-parameters", "olmo2-tokens", None, None, None, "not printed",
                None, {}, "", None,
            ),
        ),
        (
            "SmolLM3 3B",
            Case(
                2025, "h100", "smollm3-gpus", SMOLLM3, None, "smollm3-tokens", (("1", "smollm3-hours"),),
                "smollm3-mfu", layout(tp=2, dp=192, microbatch=3, zero_stage=1), "tp 2 · dp 192",
                ("nvlink-4", "infiniband-ndr"), NEW, "they say memory; and 384 does not divide 576", None,
            ),
        ),
        (
            "Kimi K2",
            Case(
                2025, "h100", "kimi-gpus", None, "kimi-active", "kimi-tokens", None, None, None,
                "pp 16 · ep 16 (× dp)", None, {}, "runs on any multiple of 256 GPUs", None,
            ),
        ),
    ]
)  # fmt: skip


def parameters(case):
    """Parameters that a token visits: counted if the model is known, else as printed; None if neither."""
    if case.model is not None:
        return transformer.parameters(case.model)
    return None if case.visited is None else number(case.visited)


def flops(case):
    """6ND; None if the source prints no tokens."""
    return None if case.tokens is None else transformer.training_flops(parameters(case), number(case.tokens))


def hours(case):
    """Hours of all accelerators together; None if not printed."""
    return case.hours and sum(number(devices) * number(each) for devices, each in case.hours)


def peak(case):
    """FLOP/s of an accelerator in bf16."""
    return hardware.peak(case.accelerator)


def whole_run(case):
    """6ND over what the accelerators could have computed in all their hours; None if hours are not printed."""
    return hours(case) and flops(case) / (3600 * hours(case) * peak(case))


def stated(case):
    """The MFU that the source states, or that its FLOP/s with full recomputation are (three quarters)."""
    if case.stated is None:
        return None
    value = number(case.stated)
    if find(case.stated).unit != "TFLOP/s":
        return value
    share = transformer.step_flops(case.model) / transformer.step_flops(case.model, 1, "full")
    return value * 1e12 / peak(case) * share


def options(case):
    """What `plan.price` and `plan.plans` are told about this run's machine and software."""
    inside, between = case.links
    return dict(case.recipe, inside=hardware.LINKS[inside], between=hardware.LINKS[between])


def priced(case):
    """The planner's `Plan` of the layout that they used."""
    return plan.price(case.model, case.layout, hardware.ACCELERATORS[case.accelerator], **options(case))


def bubble(case):
    """Idle over ideal time of their pipeline, in closed form; 0 without one."""
    a = case.layout
    if a.pp == 1:
        return 0.0
    name = "interleaved" if a.chunks > 1 else "one_f_one_b"
    return schedules.bubble_of_ideal(name, a.pp, a.microbatches, chunks=a.chunks)


def sent(case):
    """Bytes that a rank sends in a step, as (inside its node, between nodes): tp is inside, the rest between."""
    a = case.layout
    split = case.recipe.get("sequence_parallel", True) and a.tp > 1
    sizes = {"tp": a.tp, "cp": a.cp, "pp": a.pp, "dp": a.dp}
    found = topology.traffic(
        case.model, sizes, a.microbatches, a.microbatch, a.chunks, sharded_boundary=split,
        sequence_parallel=split, recomputation=a.recomputation,
    )  # fmt: skip
    inside = sum(each.sent for each in found if each.axis == "tp")
    return inside, sum(each.sent for each in found if each.axis != "tp")


def place(case, found):
    """The place of their sizes among the meshes of `found`, a list of `Plan`, fastest first; None if absent."""
    meshes = list(dict.fromkeys(tuple(each.layout[:4]) for each in found))
    mine = tuple(case.layout[:4])
    return meshes.index(mine) + 1 if mine in meshes else None
