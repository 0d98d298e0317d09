"""Tensor-parallel decode on two ranks."""

import copy

import torch
import torch.distributed as dist

from allranks.check import exercise
from allranks.check.lab_06.common import is_equal, must, new_llama, new_tokens, on_ranks
from allranks.check.lab_06.decoding import cached
from allranks.check.labs import is_written
from allranks.trace import trace

RANKS = 2
PIECES = [4, 1, 2]  # tokens of each pass


def keep(linear, dim):
    """Keep this rank's part of a linear layer's weight, in place; dim 0 cuts outputs, dim 1 inputs."""
    parts = linear.weight.detach().chunk(dist.get_world_size(), dim)
    part = parts[dist.get_rank()].clone()
    linear.weight = torch.nn.Parameter(part, requires_grad=False)


def sliced_forward(model, one_layer, tokens, pasts=None):
    """Pass new tokens through a model whose layers are cut; `one_layer` is the reader's."""
    x, after = model.model.embed_tokens(tokens), []
    for number, layer in enumerate(model.model.layers):
        x, past = one_layer(layer, x, None if pasts is None else pasts[number])
        after.append(past)
    return model.lm_head(model.model.norm(x)), after


def _decoded(cut, one_layer, attention, model, tokens):
    """On each rank: logits, numbers in the past, numbers in the cut matrices, and what was sent."""
    model = copy.deepcopy(model)
    for layer in model.model.layers:
        cut(layer)

    def judged(layer, x, past):
        found = one_layer(layer, x, past)
        must(
            found is not None and found is not ...,
            "one_layer returns nothing yet; it should return (x, past).",
        )
        must(
            isinstance(found, tuple | list) and len(found) == 2 and torch.is_tensor(found[0]),
            "one_layer should return two tensors, (x, past).",
        )
        must(
            found[0].shape == x.shape,
            f"one_layer returned shape {tuple(found[0].shape)}; expected {tuple(x.shape)}.",
        )
        return found

    logits, pasts = [], None
    with torch.no_grad(), trace() as counted:
        for piece in tokens.split(PIECES, 1):
            some, pasts = sliced_forward(model, judged, piece, pasts)
            logits.append(some)
    held = [past.numel() for past in pasts if torch.is_tensor(past)]
    matrices = [p for layer in model.model.layers for p in layer.parameters() if p.dim() > 1]
    weights, kept = (
        sum(count(p) for p in matrices)
        for count in (torch.Tensor.numel, lambda p: p.untyped_storage().nbytes() // 8)
    )
    return torch.cat(logits, 1), sum(held), (weights, kept), counted.calls, counted.sent


def _misplaced(model, tokens, where):
    """The logits of every rank with one of the mistakes in PLACES; in one process."""
    halves = [[_half(layer, rank) for rank in range(RANKS)] for layer in model.model.layers]
    x = [model.model.embed_tokens(tokens)] * RANKS

    def added(x, ys, part):
        if where == "after the residual":
            return [sum(x[r] + ys[r] for r in range(RANKS))] * RANKS
        if where == "x too":
            return (
                [RANKS * (each + sum(ys)) for each in x] if part == "attention" else [e + sum(ys) for e in x]
            )
        if where == f"no x after {part}":
            return [sum(ys)] * RANKS
        if where in ("nowhere", f"not after {part}"):
            return [each + y for each, y in zip(x, ys, strict=True)]
        return [each + sum(ys) / (RANKS if where == "mean" else 1) for each in x]

    def norm(layer, name, x):
        return x if where == f"no {name}" else getattr(layer, name)(x)

    with torch.no_grad():
        for parts in halves:
            ys = [cached(p.self_attn, norm(p, "input_layernorm", x[r]), None)[0] for r, p in enumerate(parts)]
            x = added(x, ys, "attention")
            ys = [p.mlp(norm(p, "post_attention_layernorm", x[r])) for r, p in enumerate(parts)]
            x = added(x, ys, "the feed-forward")
        return [model.lm_head(model.model.norm(each)) for each in x]


def _half(layer, rank):
    layer = copy.deepcopy(layer)
    attention, mlp = layer.self_attn, layer.mlp
    for dim, linears in (
        (0, (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj)),
        (1, (attention.o_proj, mlp.down_proj)),
    ):
        for linear in linears:
            linear.weight = torch.nn.Parameter(linear.weight.chunk(RANKS, dim)[rank].clone(), False)
    return layer


PLACES = {
    "nowhere": "no rank sums: each has half of the heads and half of the columns, and both halves count",
    "not after the feed-forward": "the feed-forward's halves are not summed",
    "not after attention": "attention's halves are not summed before the feed-forward reads them",
    "after the residual": "the sum contains x itself once for each rank: sum first, and add x then",
    "x too": "x is whole on every rank, and it is summed as well: sum y alone",
    "mean": "the halves are averaged; they are parts of one product, so they are added",
    "no x after attention": "attention's output is not added to x, it replaces it",
    "no x after the feed-forward": "the feed-forward's output is not added to x, it replaces it",
    "no input_layernorm": "attention reads x without `input_layernorm`",
    "no post_attention_layernorm": "the feed-forward reads x without `post_attention_layernorm`",
}


def judge_slices(ranks, model, tokens):
    """Fail unless every rank has the logits of one process, half of the cache and half of the matrices."""
    shape, right = model.shape, model(tokens)
    whole = shape.layers * 2 * tokens.numel() * shape.kv_heads * shape.head_width
    matrices = sum(p.numel() for layer in model.model.layers for p in layer.parameters() if p.dim() > 1)
    for rank, (_, held, (weights, kept), _, _) in enumerate(ranks):
        assert weights * RANKS == matrices, (
            f"Rank {rank} holds {weights:,} of {matrices:,} numbers in the layers' seven matrices; half of "
            "each is enough."
        )
        assert kept * RANKS == matrices, (
            f"Rank {rank} uses half of the matrices but keeps {kept:,} of {matrices:,} numbers in memory: "
            "a view keeps the whole matrix alive. Clone the half."
        )
        assert held * RANKS == whole, (
            f"Rank {rank} caches {held:,} of {whole:,} numbers of keys and values; it needs only those of "
            "its own heads, which are half."
        )
    for rank, (logits, _, _, calls, sent) in enumerate(ranks):
        assert logits.isfinite().all(), (
            f"Rank {rank} has logits that are infinite or NaN: was a sum read before its `wait()`?"
        )
        if not is_equal(logits, right):
            for place, sentence in PLACES.items():
                wrong = _misplaced(model, tokens, place)[rank]
                assert not is_equal(logits, wrong), (
                    f"Rank {rank}'s logits differ from one process's: {sentence}."
                )
            raise AssertionError(
                f"Rank {rank}'s logits differ from one process's. A rank keeps the part of each matrix "
                "that `keep` gives it; there are two sums a layer; the rest is as in `forward`."
            )
        size = 2 * shape.layers * tokens.numel() * shape.hidden * 8
        assert sent <= size * 2 * (RANKS - 1) / RANKS, (
            f"The logits are right, but rank {rank} sends {sent:,.0f} bytes by {dict(calls)}: two "
            "all-reduces of the new tokens in each layer are enough."
        )


@exercise
def sliced(cut, one_layer, attention):
    """`cut(layer)` and `one_layer(layer, x, past)` on two ranks; with `attention` of the first task."""
    is_written(cut, one_layer, attention)
    model, tokens = new_llama(), new_tokens(2, sum(PIECES))
    answers = cut, one_layer, attention
    # Under NCCL's rules a sum that nobody waits for is wrong each time; on gloo it is often there in time.
    ranks = on_ranks(_decoded, *answers, model, tokens, world_size=RANKS, rules="nccl")
    judge_slices(ranks, model, tokens)
    return "Two ranks have the logits of one process; each holds half of the matrices and half of the cache."
