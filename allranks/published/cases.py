"""How were nine famous models trained? Layout, hours and stated utilisation of each, with their sources.

Every number that a source prints is named by its entry in the ledger of claims and read there, so none is
typed twice. Shapes and layouts are those that these entries describe. What nobody published is None.
"""

from collections import OrderedDict, namedtuple

from .. import hardware, plan, schedules, topology, transformer
from ..claims import find, printed

FIELDS = (
    "date accelerator devices model visited tokens hours stated pace layout axes links recipe why failures"
)


class Case(namedtuple("Case", FIELDS)):
    """One training run.

    date: (year, month) of the publication. accelerator: in `hardware.ACCELERATORS`. devices, visited
    (parameters of a token), tokens, stated (the MFU), failures: entries of the ledger. hours: pairs
    (devices, hours) of entries, where "1" are hours of all devices together. pace: an entry, and tokens a
    second of the whole machine for each of what it prints. model: a `Transformer`, layout: a `plan.Layout`,
    if it is dense and printed. axes: the product in words. links: inside a node and between nodes. recipe:
    options of the planner. why: what decided the layout, in a few words.
    """


def number(id):
    """The number that the source of this entry of the ledger prints; 1 for "1"."""
    return 1 if id == "1" else float(printed.parse(find(id).printed).value)


BLOOM = transformer.decoder(70, 14336, 112, 250880, 2048, learned_positions=False)
SMOLLM3 = transformer.llama(36, 2048, 16, 128256, 4096, 4, 11008)._replace(tied=True)
OLMO2 = transformer.llama(40, 5120, 40, 100352, 4096, 40, 13824)

NEW = {"dropout": False, "fused": True}


def run(date, accelerator, axes, why=None, links=None, recipe=None, **known):
    """The `Case` with what is known of it; the rest is None."""
    fields = dict.fromkeys(Case._fields)
    fields.update(date=date, accelerator=accelerator, axes=axes, why=why, links=links, recipe=recipe or {})
    return Case(**{**fields, **known})


CASES = OrderedDict()
CASES["GShard 600B"] = run(
    (2020, 6), "tpu-v3", "ep 2048 · dp 2048", "one expert of each layer on each core", devices="gshard-cores"
)
CASES["Megatron-Turing 530B"] = run(
    (2022, 1),
    "a100-80gb",
    "tp 8 · pp 35 · dp 8",
    "matrices stop at the node; 35 divides the 105 layers",
    ("nvlink-3", "infiniband-hdr"),
    plan.IN_2021,
    devices="mtnlg-gpus",
    model=transformer.PRESETS["mt-nlg-530b"],
    tokens="mtnlg-tokens",
    stated="palm-table3-mtnlg",
    layout=plan.layout(tp=8, pp=35, dp=8, microbatches=240, zero_stage=0, recomputation="full"),
)
CASES["PaLM 540B"] = run(
    (2022, 4),
    "tpu-v4",
    "tp 12 · fsdp 256 · dp 2",
    "a torus is fast enough for weights: no pipeline, no bubble",
    devices="palm-chips",
    visited="palm-parameters",
    tokens="palm-tokens",
    hours=(("palm-chips", "palm-hours-two-pods"), ("palm-pod", "palm-hours-one-pod")),
    stated="palm-mfu",
    pace=("palm-tokens-a-second", 1),
    failures="palm-skips",
)
CASES["BLOOM 176B"] = run(
    (2022, 11),
    "a100-80gb",
    "tp 4 · pp 12 · dp 8",
    "the fastest of dozens that were tried",
    ("nvlink-3", "ethernet-100"),
    plan.IN_2021,
    devices="bloom-gpus",
    model=BLOOM,
    tokens="bloom-tokens",
    hours=(("1", "bloom-hours"),),
    stated="bloom-tflops",
    pace=("bloom-seconds", None),
    layout=plan.layout(tp=4, pp=12, dp=8, microbatch=2, microbatches=128, zero_stage=1, recomputation="full"),
    failures="bloom-failures",
)
CASES["Llama 3 405B"] = run(
    (2024, 7),
    "h100",
    "tp 8 · pp 16 · dp 128",
    "matrices stop at the node; pieces of one layer",
    ("nvlink-4", "roce-400"),
    dict(NEW, order=plan.LLAMA_ORDER),
    devices="llama3-table4-gpus-16384-gpus-gpus",
    model=transformer.PRESETS["llama3-405b"],
    tokens="llama3-tokens",
    hours=(("1", "llama3-hours"),),
    stated="llama3-table4-mfu-16384-gpus-mfu",
    pace=("llama3-table4-tflops-16384-gpus-tflops", None),
    layout=plan.layout(tp=8, pp=16, dp=128, microbatches=16, zero_stage=2, chunks=8),
    failures="llama3-unexpected",
)
CASES["DeepSeek-V3"] = run(
    (2024, 12),
    "h100",
    "pp 16 · dp 128 · ep 64",
    "narrow experts on GPUs with slow NVLink: no tensor parallelism",
    devices="deepseek-gpus",
    visited="deepseek-active",
    tokens="deepseek-tokens",
    hours=(("1", "deepseek-hours"),),
    stated="deepseek-mfu",
    pace=("deepseek-tokens-a-day", 1 / 86_400),
    failures="deepseek-rollbacks",
)
CASES["OLMo 2 13B"] = run((2025, 1), "h100", "not printed", model=OLMO2, tokens="olmo2-tokens")
CASES["SmolLM3 3B"] = run(
    (2025, 7),
    "h100",
    "tp 2 · dp 192",
    "memory, say the authors; and 384 does not divide 576 sequences",
    ("nvlink-4", "infiniband-ndr"),
    NEW,
    devices="smollm3-gpus",
    model=SMOLLM3,
    tokens="smollm3-tokens",
    hours=(("1", "smollm3-hours"),),
    stated="smollm3-mfu",
    pace=("smollm3-tokens-a-second", 384),
    layout=plan.layout(tp=2, dp=192, microbatch=3, zero_stage=1),
    failures="smollm3-restart",
)
CASES["Kimi K2"] = run(
    (2025, 7),
    "h100",
    "pp 16 · ep 16",
    "one layout for every multiple of 256 GPUs",
    devices="kimi-gpus",
    visited="kimi-active",
    tokens="kimi-tokens",
)


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
    """6ND over what the accelerators could have computed in all their hours; None without hours."""
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


def pace(case):
    """Tokens a second of the whole machine while it trains; None if the source prints nothing to tell.

    From tokens a second where these are printed; else from seconds of a step, or from FLOP/s of a GPU, which
    count attention.
    """
    if case.pace is None:
        return None
    id, times = case.pace
    if times is not None:
        return times * number(id)
    tokens = case.layout.batch * case.model.sequence
    if find(id).unit == "s":
        return tokens / number(id)
    return (
        number(id)
        * 1e12
        * case.layout.devices
        * tokens
        / transformer.step_flops(case.model, case.layout.batch)
    )


def at_pace(case):
    """6ND a second over the peak of all devices, at `pace`; None without one."""
    if case.pace is None:
        return None
    return transformer.training_flops(parameters(case), pace(case)) / (number(case.devices) * peak(case))


def time_share(case):
    """The share of all hours that the tokens take at `pace`; None without one."""
    return at_pace(case) and whole_run(case) / at_pace(case)


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
    """Bytes that a rank sends in a step: along tp, which is inside its node, and along all other axes."""
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
    """The place of their mesh among those of `found`, a list of `Plan`, fastest first; None if absent."""
    meshes = list(dict.fromkeys(tuple(each.layout[:4]) for each in found))
    mine = tuple(case.layout[:4])
    return meshes.index(mine) + 1 if mine in meshes else None
