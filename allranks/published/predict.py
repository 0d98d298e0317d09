"""What does the planner say about each published run, and how far is it off?"""

from collections import OrderedDict, namedtuple
from functools import cache

from ..hardware import Link
from ..plan import divisors, parts, price, rates
from ..plan.fitted import FITTED
from ..plan.step import Parts
from .measured import runs, seconds, setup, unknown

# Whose constants a source uses that has none of its own.
LIKE = {"nemo-long": "nemo", "korthikanti": "narayanan", "bigscience-1b3": "bigscience", "llama3": "dgxc"}
WIDTHS = {"bf16": "16", "fp16": "16", "fp8": "8", "fp8-row": "row", "mxfp8": "mx", "nvfp4": "4"}
NETWORKS = {  # bytes/s of a device, where the source prints another network than its hardware usually has
    ("bigscience", "a100"): 6.25e9,  # four Omni-Path cards of 100 Gbit/s for eight devices
    ("fms-fsdp", "a100"): 6.25e9,  # 400 Gbit/s a node
    ("fms-fsdp", "h100"): 12.5e9,  # 800 Gbit/s a node
}
IMPROVED = 767  # the line from which BigScience's chronicle tells of faster hosts
STALLED = 3  # % of MFU below which a run of the Playbook counts as stalled


class Prediction(namedtuple("Prediction", "run plan measured")):
    """A `Run`, its `plan.Plan`, and the measured seconds of a step."""

    @property
    def seconds(self):
        return self.plan.seconds

    @property
    def error(self):
        """How much longer than measured the planner says a step takes: 0.1 is 10 %."""
        return self.plan.seconds / self.measured - 1


def kind(run):
    """Whether a run is "dense", "experts", "tp over nodes" or "stalled".

    The last two are runs of the Playbook that no layout explains: matrices cut over nodes, and less than
    `STALLED` % of the peak, which its authors do not explain either.
    """
    if run.source == "playbook" and run.tp > 8:
        return "tp over nodes"
    if run.source == "playbook" and run.mfu_pct < STALLED:
        return "stalled"
    return "experts" if has_experts(run) else "dense"


def has_experts(run):
    """Whether the model of a run is a mixture of experts that the planner can be asked about."""
    return run.model.startswith(("Qwen3", "GPT OSS", "GPT-OSS"))


def rates_of(run, **constants):
    """The `plan.Rates` of a run's stack; constants: as in `plan.rates`."""
    notes = run.notes or ""
    chunked = True if "sync" in notes and "anilla" not in notes else None
    source = LIKE.get(run.source, run.source)
    return rates(
        source, run.generation, WIDTHS[run.dtype], experts=has_experts(run), chunked=chunked,
        card=card_of(run), **constants,
    )  # fmt: skip


def card_of(run):
    """The card whose speed a run has: that of its hardware, but for BigScience's first weeks.

    "A100s PCI-Express/NUMA was improved today", says the chronicle on 25 February 2022, "thus do not compare
    today's numbers to yesterday's" (chronicles-prequel.md, line 767).
    """
    early = run.source == "bigscience" and int(run.where.partition(":")[2]) < IMPROVED
    return "a100-80gb early" if early else run.hardware


def ready(run):
    """What `plan.price` is asked about a run: (model, layout, accelerator) and its options without rates."""
    model, layout, accelerator, options = setup(run)
    network = NETWORKS.get((LIKE.get(run.source, run.source), run.generation))
    if network:
        options["between"] = Link("printed", options["between"].α, network, run.source, run.date)
    if run.source == "playbook":  # nanotron hides gradients only where torch's DDP reduces them: without ZeRO
        options["overlap"] = 1.0 if layout.zero_stage == 0 else 0.0
        options["recipe"], options["balanced"] = "megatron-18", True
    if run.source == "torchtitan":  # it reduces in 4 bytes, and with a pipeline keeps what it gathered
        options["recipe"] = "megatron-18"
        if layout.pp > 1:
            layout = layout._replace(zero_stage=1)
    if "is uneven" in (run.notes or ""):  # BigScience: 78 layers as eleven times 7, and 1 before the output
        options["balanced"] = True
    return (model, layout, accelerator), options


def unprinted(run):
    """What `prepared` has to choose, as the source does not print it: of "micro-batch" and "pieces", a tuple.

    pieces: chunks of a stage, which Megatron-Bridge prints for some of its pipelines only.
    """
    pieces = run.source == "megatron-bridge" and run.pp > 1 and run.vp is None
    return ("micro-batch",) * (not run.mbs) + ("pieces",) * pieces


@cache
def prepared(run):
    """As `ready`, with what is `unprinted`: its authors tuned it, so we take the fastest that fits.

    The fastest by the committed constants, of which some are fitted to these runs too.
    """
    (model, layout, accelerator), options = ready(run)
    sequences = layout.microbatch * layout.microbatches
    missing = unprinted(run)
    batches = divisors(sequences) if "micro-batch" in missing else [layout.microbatch]
    pieces = divisors(model.layers // layout.pp) if "pieces" in missing else [layout.chunks]
    found = [
        price(
            model, layout._replace(microbatch=b, microbatches=sequences // b, chunks=v), accelerator,
            rates=rates_of(run), **options,
        )
        for b in batches for v in pieces
    ]  # fmt: skip
    chosen = min([each for each in found if each.fits] or found, key=lambda each: each.seconds)
    return (model, chosen.layout, accelerator), options


def half(run):
    """Whether half of a run is recomputed: torch's selective modes take every second layer or product."""
    return run.source in ("torchtitan", "fms-fsdp") and (run.recompute or "").startswith("selective")


def step_of(run, constants):
    """The `plan.Parts` of a step, from `constants` such as `FITTED`."""
    (model, layout, accelerator), options = prepared(run)
    options = dict(options, rates=rates_of(run, constants=constants))
    took = parts(model, layout, accelerator, **options)
    if not half(run):
        return took
    again = parts(model, layout._replace(recomputation="full"), accelerator, **options)
    return Parts(*[(one + other) / 2 for one, other in zip(took, again)])


def predicted(run, constants=FITTED):
    """The `Prediction` of a run; ValueError says why the planner cannot be asked."""
    asked, options = prepared(run)
    took = step_of(run, constants)
    plan = price(*asked, rates=rates_of(run, constants=constants), **options)
    mfu = plan.mfu * plan.seconds / took.seconds
    return Prediction(run, plan._replace(parts=took, seconds=took.seconds, mfu=mfu), seconds(run))


def predictions(constants=FITTED):
    """The `Prediction` of every run the planner can be asked about, and the reasons for the others.

    Returns (a list, a dict from the run's id to a sentence).
    """
    made, reasons = [], OrderedDict()
    for run in runs():
        why = unknown(run)
        if why:
            reasons[run.id] = why
        else:
            made.append(predicted(run, constants))
    return made, reasons
