"""Which slice of each matrix does a tensor-parallel rank hold, and what does it send for one layer?

The model: linear layers as in Megatron-LM (Shoeybi et al. 2019, section 3). X A cuts A by columns and needs
no sum; Y B cuts B by rows, and the ranks' products are partial sums. Biases are left out.
"""

from collections import namedtuple

from ..collectives import ring_all_gather_bytes, ring_all_reduce_bytes, ring_reduce_scatter_bytes
from ..inputs import multiple, one_of, quantity, whole

KINDS = ("column", "row", "feed-forward", "attention")
SENT = {
    "all_reduce": ring_all_reduce_bytes,
    "all_gather": ring_all_gather_bytes,
    "reduce_scatter": ring_reduce_scatter_bytes,
}


class Matrix(namedtuple("Matrix", "name weight rows widths split gradient")):
    """A matrix of a layer and how the ranks share it.

    weight: whether it is one, else activations. rows: of the whole matrix; widths: columns of the matrices
    that lie side by side in it (queries, keys and values), each of which is cut. split: "rows" or "columns":
    each rank has a part; "none": each has all of it; "partial": each has a partial sum of it. gradient:
    the same of its gradient.
    """

    __slots__ = ()

    @property
    def columns(self):
        return sum(self.widths)

    def shape(self, world_size, gradient=False):
        """Rows and columns that one of `world_size` ranks holds."""
        split = self.gradient if gradient else self.split
        return (
            self.rows // world_size if split == "rows" else self.rows,
            self.columns // world_size if split == "columns" else self.columns,
        )


class Call(namedtuple("Call", "operator phase collective nbytes sent")):
    """What the operator at one end of the layer does in "forward" or "backward" of a micro-batch.

    collective: "all_reduce", "all_gather", "reduce_scatter"; "copy", "slice": nothing is sent. Phase "again":
    what backward repeats of forward. nbytes: of the whole message; sent: bytes that a rank sends in a ring.
    """

    __slots__ = ()


def tensor_matrices(kind, model, world_size, microbatch=1, sequence_parallel=False):
    """The matrices of a part of a layer in the order of forward: a tuple of `Matrix`.

    kind: "feed-forward" (A by columns, then B by rows), "attention" (queries, keys and values by heads, which
    are columns, then the output by rows), or only the "column" or "row" part of the feed-forward, with whole
    matrices before and after. A gate's matrix lies beside the first one's. sequence_parallel: the input of
    the first two kinds, and their output, are cut by tokens (Korthikanti et al. 2022, section 4.2.2).
    """
    t = _checked(kind, model, world_size, microbatch, sequence_parallel)
    tokens, h, f = microbatch * model.sequence, model.hidden, model.feed_forward
    first, inner = ((f, f) if model.gated else (f,)), f
    if kind == "attention":
        inner, keys = model.heads * model.head_width, model.kv_heads * model.head_width
        first = (inner, keys, keys)
        multiple("kv_heads", model.kv_heads, "world_size", t)
    else:
        multiple("feed_forward", f, "world_size", t)
    whole_or_cut = "rows" if sequence_parallel else "none"
    if sequence_parallel:
        multiple("microbatch × sequence", tokens, "world_size", t)
    x = Matrix("X", False, tokens, (h,), whole_or_cut, whole_or_cut)
    a = Matrix("A", True, h, first, "columns", "columns")
    y = Matrix("Y", False, tokens, (inner,), "columns", "columns")
    b = Matrix("B", True, inner, (h,), "rows", "rows")
    z = Matrix("Z", False, tokens, (h,), whole_or_cut, whole_or_cut)
    inside = Matrix("X", False, tokens, (h,), "none", "partial")
    partial = Matrix("Z", False, tokens, (h,), "partial", "none")
    if kind == "column":
        y = Matrix("Y", False, tokens, (f,), "columns", "columns")
        out = Matrix("Y", False, tokens, (f,), "none", "none")
        return x, inside, Matrix("A", True, h, (f,), "columns", "columns"), y, out
    if kind == "row":
        before = Matrix("Y", False, tokens, (f,), "none", "none")
        return before, y, b, partial, z
    return x, inside, a, y, b, partial, z


def tensor_calls(kind, model, world_size, microbatch=1, sequence_parallel=False, element_bytes=2):
    """What the two operators do for one micro-batch: a tuple of `Call`.

    f, before a matrix cut by columns, copies forward and sums the gradients backward; g, after one cut by
    rows, the other way round (Shoeybi et al. 2019, section 3). With sequence parallelism they gather and
    reduce-scatter, which sends as much (Korthikanti et al. 2022, section 4.2.2); because a rank keeps only
    its part of X, backward gathers it "again". A column alone gathers its output, a row alone slices its
    input.
    """
    _checked(kind, model, world_size, microbatch, sequence_parallel)
    quantity("element_bytes", element_bytes, positive=True)
    tokens = microbatch * model.sequence * element_bytes
    hidden, inner = tokens * model.hidden, tokens * model.feed_forward
    if sequence_parallel:
        acts = (("f", "all_gather", "reduce_scatter", hidden), ("g", "reduce_scatter", "all_gather", hidden))
    else:
        acts = (("f", "copy", "all_reduce", hidden), ("g", "all_reduce", "copy", hidden))
    if kind == "column":
        acts = (acts[0], ("gather", "all_gather", "slice", inner))
    if kind == "row":
        acts = (("slice", "slice", "all_gather", inner), acts[1])
    made = []
    for operator, forward, backward, nbytes in acts:
        made.append((operator, "forward", forward, nbytes))
        made.append((operator, "backward", backward, nbytes))
    if sequence_parallel:
        made.append(("f", "again", "all_gather", hidden))
    return tuple(Call(*each, SENT[each[2]](each[3], world_size) if each[2] in SENT else 0) for each in made)


def _checked(kind, model, world_size, microbatch, sequence_parallel):
    one_of("kind", kind, KINDS), whole("microbatch", microbatch)
    one_of("sequence_parallel", sequence_parallel, (False, True))
    if sequence_parallel and kind in ("column", "row"):
        raise ValueError(f"sequence_parallel must be off for a {kind} alone")
    return whole("world_size", world_size)
