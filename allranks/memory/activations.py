"""What does backward need from forward: which tensors, of which size, on which rank?

A tensor is kept if some gradient is computed from it, and counted once. b sequences of s tokens in a
micro-batch, hidden size h, a heads, t tensor-parallel ranks. Statistics of the norms are kept too, and so
small that the paper leaves them out (Korthikanti et al. 2022, section 4.1); they are listed, and not summed.
"""

import math
from collections import namedtuple

from ..inputs import multiple, one_of, quantity, whole
from ..interleaving import group_size
from ..transformer import RECOMPUTATION
from .states import share

GATHERED = ("input of queries, keys and values", "input of the feed-forward")  # in front of cut matrices


class Saved(namedtuple("Saved", "name part split nbytes")):
    """A tensor kept for backward, of `nbytes` in all.

    part: "norm", "attention", "core" (what selective recomputation drops), "feed-forward", or "small". split:
    what tensor parallelism cuts it by: "heads", "kv heads", "feed-forward"; "sequence": not cut, unless the
    ranks split the sequence too.
    """


def layer_tensors(model, microbatch=1, element=2, dropout=True, fused=False):
    """The tensors that one layer keeps for backward: a list of `Saved`, in the order of forward.

    With elements of 2 bytes and masks of 1 they take sbh(34 + 5as/h) bytes in GPT-2's shape (Korthikanti et
    al. 2022, equation 1). dropout: where the model has any. fused: scores are computed in tiles and only a
    log-sum-exp of each row is kept (Dao et al. 2022), and a gate's SiLU is computed again. Each token visits
    `active_experts` experts, and none is dropped.
    """
    h, f, visits = model.hidden, model.feed_forward, model.active_experts
    queries, keys = model.heads * model.head_width, model.kv_heads * model.head_width
    whole("microbatch", microbatch), quantity("element", element, positive=True)
    one_of("dropout", dropout, (False, True)), one_of("fused", fused, (False, True))
    tokens = microbatch * model.sequence
    scores = model.heads * model.sequence * tokens
    statistics = (2 if model.biases else 1) * 4 * tokens
    mask = tokens * h if dropout else 0
    x, q, kv, inner = (tokens * width * element for width in (h, queries, keys, visits * f))
    saved = [
        Saved("input of the first norm", "norm", "sequence", x),
        Saved("statistics of the first norm", "small", "sequence", statistics),
        Saved("input of queries, keys and values", "attention", "sequence", x),
        Saved("queries", "attention", "heads", q),
        Saved("keys", "attention", "kv heads", kv),
    ]
    if fused:
        saved.append(Saved("log-sum-exp of the scores", "small", "heads", 4 * model.heads * tokens))
    else:
        saved.append(Saved("softmax of the scores", "core", "heads", scores * element))
        if dropout:
            saved.append(Saved("dropout mask of the scores", "core", "heads", scores))
            saved.append(Saved("scores after dropout", "core", "heads", scores * element))
    saved += [
        Saved("values", "attention", "kv heads", kv),
        Saved("input of the output projection", "attention", "heads", q),
        Saved("dropout mask of attention", "attention", "sequence", mask),
        Saved("input of the second norm", "norm", "sequence", x),
        Saved("statistics of the second norm", "small", "sequence", statistics),
        Saved("input of the feed-forward", "feed-forward", "sequence", x),
    ]
    if model.experts > 1:
        saved.append(Saved("its copies for the experts", "feed-forward", "sequence", visits * x))
    if model.gated:
        saved.append(Saved("gate before SiLU", "feed-forward", "feed-forward", inner))
        if not fused:
            saved.append(Saved("gate after SiLU", "feed-forward", "feed-forward", inner))
        saved.append(Saved("what the gate multiplies", "feed-forward", "feed-forward", inner))
    else:
        saved.append(Saved("input of GeLU", "feed-forward", "feed-forward", inner))
    saved.append(Saved("input of the second linear layer", "feed-forward", "feed-forward", inner))
    if model.experts > 1:
        saved.append(Saved("outputs of the experts", "feed-forward", "sequence", visits * x))
    saved.append(Saved("dropout mask of the feed-forward", "feed-forward", "sequence", mask))
    return [tensor for tensor in saved if tensor.nbytes]


def layer_activation_bytes(
    model, microbatch=1, tensor_parallel=1, sequence_parallel=False, recomputation="none", *,
    context_parallel=1, element=2, dropout=True, fused=False, small=False, regather=True,
):  # fmt: skip
    """Bytes that one layer keeps on a rank for one micro-batch (Korthikanti et al. 2022, Table 2).

    In GPT-2's shape: sbh(34 + 5as/h); tensor parallel sbh(10 + 24/t + 5as/(ht)); with sequence parallel
    sbh(34/t + 5as/(ht)); selective recomputation drops the term with a; full keeps the layer's input, 2sbh,
    and 2sbh/t where the sequence is split. Context parallelism divides all of it. element, dropout, fused: as
    in `layer_tensors`. small: add the statistics. regather: with the sequence split, the inputs of the
    matrices are gathered again in backward, as in Table 2; False keeps them whole, sbh(4 + 30/t + 5as/(ht)).
    """
    parts = layer_activation_parts(
        model, microbatch, tensor_parallel, sequence_parallel, recomputation, element=element,
        dropout=dropout, fused=fused, regather=regather,
    )  # fmt: skip
    return share(sum(nbytes for part, nbytes in parts.items() if small or part != "small"), context_parallel)


def layer_activation_parts(
    model, microbatch=1, tensor_parallel=1, sequence_parallel=False, recomputation="none", *,
    element=2, dropout=True, fused=False, regather=True,
):  # fmt: skip
    """The same by where it is: {"between the matrices", "inside", "core", "small"} to bytes on a rank.

    Between the matrices is what tensor parallelism does not cut, the core what selective recomputation drops.
    ValueError for experts without `regather`: each of them gets its tokens, and gathers nothing.
    """
    t = _checked(model, microbatch, tensor_parallel, sequence_parallel, recomputation, 1)
    one_of("regather", regather, (False, True))
    if not regather and model.experts > 1:
        raise ValueError(f"regather must be True for a model with {model.experts} experts")
    saved = layer_tensors(model, microbatch, element, dropout, fused)
    if recomputation == "full":
        saved, regather = saved[:1], True
    ways = {"heads": t, "feed-forward": t, "kv heads": min(t, model.kv_heads)}
    ways["sequence"] = t if sequence_parallel else 1
    parts = {"between the matrices": 0, "inside": 0, "core": 0, "small": 0}
    for tensor in saved:
        part = "between the matrices" if tensor.split == "sequence" else "inside"
        part = tensor.part if tensor.part in parts else part
        if part != "core" or recomputation != "selective":
            cut = ways[tensor.split] if regather or tensor.name not in GATHERED else 1
            parts[part] += share(tensor.nbytes, cut)
    return parts


def recomputed_bytes(
    model, microbatch=1, tensor_parallel=1, sequence_parallel=False, recomputation="none", *,
    context_parallel=1, element=2, dropout=True, fused=False,
):  # fmt: skip
    """Bytes that come back in backward, one layer at a time: what recomputation had dropped of a layer."""
    where = (model, microbatch, tensor_parallel, sequence_parallel)
    how = {"context_parallel": context_parallel, "element": element, "dropout": dropout, "fused": fused}
    return layer_activation_bytes(*where, "none", **how) - layer_activation_bytes(
        *where, recomputation, **how
    )


def output_activation_bytes(
    model, microbatch=1, tensor_parallel=1, sequence_parallel=False, *, context_parallel=1, element=2
):
    """Bytes kept after the last layer: the inputs of norm and output layer, and the logits in 4 bytes.

    4sbh/t · (1 + V/h), with the sequence split (Korthikanti et al. 2022, section 4.3); V/t rounded up.
    """
    t = _checked(model, microbatch, tensor_parallel, sequence_parallel, "none", context_parallel)
    tokens = microbatch * model.sequence
    inputs = share(2 * tokens * model.hidden * element, t if sequence_parallel else 1)
    return share(inputs + 4 * tokens * math.ceil(model.vocabulary / t), context_parallel)


def in_flight(stage, stages, microbatches=None, chunks=1, schedule="1f1b"):
    """Micro-batches whose activations a rank holds at once: those forwarded and not yet gone backward.

    stage: which of the `stages` ranks of the pipeline, the first is 0. GPipe: all of them. 1F1B: p - stage.
    With `chunks` v > 1, interleaved in groups of N = `group_size`: (2(p - stage - 1) + (v - 1)N + 1)/v, with
    N = p on the first p(1 + (p-1)/(pv)) (Narayanan et al. 2021, section 2.2; Korthikanti et al. 2022, section
    4.2.3). Never more than `microbatches`, of which None stands for a multiple of p.
    """
    whole("stages", stages), whole("stage", stage, 0, stages - 1), whole("chunks", chunks)
    one_of("schedule", schedule, ("1f1b", "gpipe"))
    if microbatches is not None:
        whole("microbatches", microbatches)
    if schedule == "gpipe":
        if microbatches is None:
            raise ValueError("microbatches must be given for gpipe, which holds all of them")
        return microbatches
    held = stages - stage
    if chunks > 1:
        group = stages if microbatches is None else group_size(stages, microbatches)
        held = share(2 * (stages - stage - 1) + (chunks - 1) * group + 1, chunks)
    return held if microbatches is None else min(held, microbatches)


def kept_bytes(
    model, microbatch=1, tensor_parallel=1, sequence_parallel=False, recomputation="none", *, layers=None,
    held=1, first=True, last=True, context_parallel=1, element=2, dropout=True, fused=False,
):  # fmt: skip
    """Bytes kept on a rank that has `layers` layers (None: all) and holds `held` micro-batches.

    first: it has the embedding, whose dropout mask it keeps, sbh bytes; last: it has the output layer, whose
    tensors it keeps for one micro-batch (Korthikanti et al. 2022, section 4.3).
    """
    where = (model, microbatch, tensor_parallel, sequence_parallel)
    how = {"context_parallel": context_parallel, "element": element}
    layers = model.layers if layers is None else quantity("layers", layers)
    one_of("first", first, (False, True)), one_of("last", last, (False, True))
    a_layer = layer_activation_bytes(*where, recomputation, dropout=dropout, fused=fused, **how)
    kept = quantity("held", held) * layers * a_layer
    if first and dropout:
        mask = microbatch * model.sequence * model.hidden
        kept += held * share(mask, (tensor_parallel if sequence_parallel else 1) * context_parallel)
    return kept + output_activation_bytes(*where, **how) if last else kept


def activation_bytes(
    model, microbatch=1, tensor_parallel=1, sequence_parallel=False, recomputation="none", *,
    pipeline_parallel=1, chunks=1, microbatches=None,
    context_parallel=1, element=2, dropout=True, fused=False,
):  # fmt: skip
    """Bytes of activations on a rank of the first stage, about those of all L layers: no stage holds more.

    1F1B: p micro-batches of L/p layers; interleaved 1 + (p-1)/(pv) times as many; and the embedding's and,
    without a pipeline, the output layer's (Korthikanti et al. 2022, sections 4.2.3 and 4.3).
    """
    held = in_flight(0, whole("pipeline_parallel", pipeline_parallel), microbatches, chunks)
    return kept_bytes(
        model, microbatch, tensor_parallel, sequence_parallel, recomputation,
        layers=share(model.layers, pipeline_parallel), held=held, first=True, last=pipeline_parallel == 1,
        context_parallel=context_parallel, element=element, dropout=dropout, fused=fused,
    )  # fmt: skip


def _checked(model, microbatch, tensor_parallel, sequence_parallel, recomputation, context_parallel):
    whole("microbatch", microbatch), whole("tensor_parallel", tensor_parallel)
    whole("context_parallel", context_parallel)
    one_of("sequence_parallel", sequence_parallel, (False, True))
    one_of("recomputation", recomputation, RECOMPUTATION)
    multiple("heads", model.heads, "tensor_parallel", tensor_parallel)
    multiple("feed_forward", model.feed_forward, "tensor_parallel", tensor_parallel)
    multiple("sequence", model.sequence, "context_parallel", context_parallel)
    return tensor_parallel
