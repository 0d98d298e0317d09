"""How long do the kernels of a layer take on one rank? Matrix products by shape, attention, and traffic.

The model: a product of m × k by k × n takes its FLOPs at the share of the peak that large products reach, and
its bytes at the memory's bandwidth besides, so that small products reach less. Attention's core runs at a
share of its own. Whatever else a layer does moves bytes and computes next to nothing: each byte that it keeps
for backward crosses the memory some times.
"""

from collections import namedtuple

from .. import memory
from ..inputs import one_of

FIELDS = (
    "product attention traffic stack launch misaligned wire hop call bucket chunked contention slack added"
)


class Rates(namedtuple("Rates", FIELDS)):
    """What a generation of accelerators and a software stack reach: each number, each with a meaning.

    product: a dict from dtype to the share of its peak that the best matrix product reaches. attention: that
    of fused attention, of the 16-bit peak. traffic: how often a byte kept for backward crosses the memory in
    a step. stack: by what the stack's kernels take longer than this sum. launch: seconds in which a layer's
    kernels are started, in each pass. misaligned: by what attention's products take longer if heads are not a
    multiple of 8 wide. wire: a pair of shares, of the bandwidth inside a node and between nodes, that
    collectives reach. hop: α of a hop between nodes, in units of the link's. call: seconds that starting a
    collective takes. bucket: bytes of gradients or weights in one collective, as
    (at least, for each rank): the larger. chunked: of the communication in tensor and context parallelism
    that backward does not hide, the share that products cut into chunks hide. contention: seconds by which a
    second of hidden gradients and weights slows down the compute beside it. slack: by what the slowest of
    twice as many devices takes longer. added: whether a kernel of its own adds the gradients of each
    micro-batch to their sum; if not, the product that makes them does.
    """


class Kernels(namedtuple("Kernels", "forward backward core logits logits_backward")):
    """Seconds of a micro-batch on one rank: of a layer, of its attention core forward, and of the logits."""


def product_seconds(rows, inner, columns, accelerator, dtype, rates):
    """Seconds of a product of `rows` × `inner` by `inner` × `columns`.

    Its share of the peak is e/(1 + e · ridge/intensity): with e, the best, where FLOPs a byte are many.
    """
    element = 2 if dtype in ("bf16", "fp16") else 1
    moved = element * inner * (rows + columns) + 2 * rows * columns
    flops = 2 * rows * inner * columns
    return flops / (rates.product[dtype] * accelerator.peak[dtype]) + moved / accelerator.bandwidth


def kernels(
    model, layout, accelerator, rates, dtype="bf16", attended=1.0, sequence_parallel=True, dropout=True,
    fused=False,
):  # fmt: skip
    """The `Kernels` of a micro-batch of `layout`: products in `dtype`, attention and logits in 16 bits.

    Backward has two products for each of forward. Fused attention computes `attended` of the pairs, and again
    in backward: 5 products for 2 (Dao et al. 2022). If it is not fused, all pairs, as products by head.
    """
    one_of("dtype", dtype, sorted(rates.product))
    tp, cp, _, _, ep, _, b, _, _, _ = layout
    plain = dtype if dtype in ("bf16", "fp16") else "bf16"
    tokens = b * model.sequence / cp
    queries, keys = model.heads * model.head_width, model.kv_heads * model.head_width
    columns = (queries + 2 * max(keys, tp * model.head_width)) / tp
    visits = tokens * model.active_experts * ep / model.experts
    inner = model.feed_forward / tp

    def product(rows, k, n, kind=dtype):
        return product_seconds(rows, k, n, accelerator, kind, rates)

    up = product(visits, model.hidden, (2 if model.gated else 1) * inner)
    experts = model.experts / ep * (up + product(visits, inner, model.hidden))
    products = product(tokens, model.hidden, columns) + product(tokens, queries / tp, model.hidden) + experts
    flops = 4 * tokens * model.sequence * queries / tp
    if fused:
        core = attended * flops / (rates.attention * accelerator.peak[plain])
        core_backward = 2.5 * core
    else:
        core = flops / (rates.product[plain] * accelerator.peak[plain])
        core *= rates.misaligned if model.head_width % 8 else 1.0
        core_backward = 2 * core
    split = sequence_parallel and tp > 1
    kept = memory.layer_activation_bytes(
        model, b, tp, split, context_parallel=cp, dropout=dropout, fused=fused
    )
    moved = rates.traffic * kept / accelerator.bandwidth / 3
    after = memory.output_activation_bytes(model, b, tp, split, context_parallel=cp)
    moved_after = rates.traffic * after / accelerator.bandwidth / 3
    logits = product(tokens, model.hidden, model.vocabulary / tp, plain)
    took = (
        products + core + moved, 2 * products + core_backward + 2 * moved, core, logits + moved_after,
        2 * (logits + moved_after),
    )  # fmt: skip
    forward, backward, core, logits, logits_backward = (rates.stack * each for each in took)
    return Kernels(forward + rates.launch, backward + 2 * rates.launch, core, logits, logits_backward)
