"""Which layouts are legal? What a way to divide a model and its batch over devices has to obey.

Heads and feed-forward are cut over tensor-parallel ranks, the sequence over context-parallel ones, layers
over the stages of a pipeline, the batch over the rest; experts live on ranks of context and data parallel.
"""

from collections import namedtuple

from ..inputs import multiple, one_of, whole
from ..memory.states import STAGES
from ..transformer import RECOMPUTATION

AXES = ("tp", "cp", "pp", "dp", "ep")
FIELDS = "tp cp pp dp ep zero_stage microbatch microbatches recomputation chunks"


class Layout(namedtuple("Layout", FIELDS)):
    """Sizes of tensor, context, pipeline, data and expert parallelism, and how a step goes through them.

    A step has dp · microbatch · microbatches sequences: each replica takes `microbatches` micro-batches of
    `microbatch` sequences through its pipeline, whose ranks hold `chunks` pieces of the model each. ep
    divides cp · dp, and does not add devices.
    """

    @property
    def devices(self):
        return self.tp * self.cp * self.pp * self.dp

    @property
    def batch(self):
        """Sequences of a step."""
        return self.dp * self.microbatch * self.microbatches


def layout(
    *,
    tp=1,
    cp=1,
    pp=1,
    dp=1,
    ep=1,
    zero_stage=1,
    microbatch=1,
    microbatches=1,
    recomputation="none",
    chunks=1,
):
    """The `Layout` with these numbers; `illegal` asks whether a model can have it."""
    sizes = ("tp", tp), ("cp", cp), ("pp", pp), ("dp", dp), ("ep", ep)
    for name, value in sizes:
        whole(name, value)
    whole("microbatch", microbatch), whole("microbatches", microbatches), whole("chunks", chunks)
    one_of("zero_stage", zero_stage, STAGES), one_of("recomputation", recomputation, RECOMPUTATION)
    multiple("cp × dp", cp * dp, "ep", ep)
    return Layout(tp, cp, pp, dp, ep, zero_stage, microbatch, microbatches, recomputation, chunks)


def illegal(model, each, sequence_parallel=True):
    """Why `model` cannot have the `Layout` `each`: a sentence, or None if it can."""
    keys = model.kv_heads
    if model.heads % each.tp or model.feed_forward % each.tp:
        return f"tp = {each.tp} must divide {model.heads} heads and feed-forward size {model.feed_forward}"
    if keys % each.tp and each.tp % keys:
        return f"tp = {each.tp} must divide {keys} heads of keys and values, or be a multiple of them"
    whole_parts = each.cp * (each.tp if sequence_parallel else 1)
    if model.sequence % whole_parts:
        return f"a sequence of {model.sequence} cannot be cut into {whole_parts} equal parts"
    if each.pp * each.chunks > model.layers + 2:  # the first and the last piece may have no layer
        return f"{model.layers} layers cannot fill {each.pp} stages of {each.chunks} pieces"
    if each.chunks > 1 and each.pp == 1:
        return f"{each.chunks} pieces need a pipeline to interleave, not pp = 1"
    if model.experts % each.ep or (each.cp % each.ep and each.ep % each.cp):
        return (
            f"ep = {each.ep} must divide {model.experts} experts, "
            f"and must divide cp = {each.cp} or be a multiple of it"
        )
    if each.dp % (-(-each.ep // each.cp)):
        return f"ep = {each.ep} must divide cp × dp = {each.cp * each.dp}"
    return None
