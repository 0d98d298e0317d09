"""What share of its hardware does a stack reach? The planner's constants, few and named.

`PRODUCT` and the network's are documented; `FITTED` is made by benchmarks/published_runs.py from those
published runs that are not kept out.
"""

from ..inputs import one_of
from .fitted import FITTED
from .layer import Rates

# The best matrix product: Bekman 2023, compute/accelerator/README.md, "Maximum Achievable Matmul FLOPS", read
# in 2026. V100 is not in the table; nobody prints 4 bits, which take the share of 8.
PRODUCT = {
    "v100": {"fp16": 0.8},
    "a100": {"bf16": 0.869, "fp16": 0.869},
    "h100": {"bf16": 0.803, "fp16": 0.803, "fp8": 0.709},
    "h200": {"bf16": 0.803, "fp16": 0.803, "fp8": 0.734},
    "b200": {"bf16": 0.776, "fp8": 0.763, "fp4": 0.763},
    "b300": {"bf16": 0.786, "fp8": 0.745, "fp4": 0.745},
    "gb200": {"bf16": 0.729, "fp8": 0.723, "fp4": 0.723},
    "gb300": {"bf16": 0.729, "fp8": 0.723, "fp4": 0.723},
}
WIRE = (0.78, 0.9)  # of a link inside and between nodes: what published all-reduces of large messages reach
CALL = 30e-6  # seconds: what published all-reduces of 32 kB take, less the hops of protocol LL
HOPS = {"playbook": 3.2}  # 45 µs on EFA instead of 14, from the Playbook's bandwidths at 32 to 512 ranks
BUCKETS = {"playbook": (50e6, 0), "torchtitan": (25e6, 0)}  # bytes in a collective: torch's default
BUCKET = (80e6, 2e6)  # Megatron Core's: 40 million parameters, or a million for each rank if that is more
FUSED = ("dgxc", "nemo", "megatron-bridge", "automodel", "megascale")  # few, large kernels a layer
ADDED = ("bigscience", "narayanan", "playbook")  # a kernel of its own sums gradients over micro-batches
CHUNKED = ("dgxc", "nemo", "megatron-bridge", "megascale")  # products in chunks beside communication
FLAT = ("llm-foundry",)  # torch's first FSDP, which gathers flat units
NEWER = {"h200": "h100", "b300": "blackwell", "gb200": "blackwell", "gb300": "blackwell", "b200": "blackwell"}

FOR_STACKS = [name for name in sorted(FITTED) if name.startswith("stack ") and name != "stack experts"]
STACKS = tuple(name.partition(" ")[2] for name in FOR_STACKS)


def names(stack, generation, width, experts=False, card=None):
    """The names in `FITTED` of the constants of a stack: a dict from what they mean to the name."""
    near = NEWER.get(generation, "a100" if generation == "v100" else generation)
    old = "llm-foundry " if stack == "llm-foundry" else ""
    chip = {"h200": "h100", "gb200": "b200", "gb300": "b300"}.get(generation, generation)
    return {
        "stack": "stack experts" if experts else f"stack {stack}",
        "width": f"width {chip} {width}",
        "card": f"card {card}",
        "attention": f"attention {old}{near}",
        "traffic": "traffic",
        "launch": "launch fused" if stack in FUSED else "launch eager",
        "contention": "contention flat" if stack in FLAT else "contention",
    }


def rates(stack, generation, width="16", *, experts=False, chunked=None, card=None, constants=FITTED):
    """The `Rates` of a software stack on a generation of accelerators.

    stack: one of `STACKS`, a source of published runs. generation: "a100", "h100" …; width: "16", "8", "mx"
    or "4" bits of the products' inputs, "row" for 8 with a scale a row. experts: of a mixture. chunked:
    whether products are cut into chunks to hide communication; None: as the stack does. card: "h100-500w", a
    card of less power than its generation has, or "a100-80gb early", on slower hosts; None: as usual.
    constants: to use instead of `FITTED`.
    """
    one_of("generation", generation, sorted(PRODUCT))
    one_of("stack", stack, STACKS if constants is FITTED else [stack])
    name = names(stack, generation, width, experts, card)
    chunked = stack in CHUNKED if chunked is None else chunked
    return Rates(
        PRODUCT[generation], constants[name["attention"]], constants[name["traffic"]],
        constants[name["stack"]] * constants.get(name["width"], 1.0) * constants.get(name["card"], 1.0),
        constants[name["launch"]],
        constants["misaligned"], WIRE, HOPS.get(stack, 1.0), CALL, BUCKETS.get(stack, BUCKET),
        constants["chunked"] if chunked else 0.0, constants[name["contention"]],
        constants["slack"], stack in ADDED,
    )  # fmt: skip
