"""Lab 06, decode with a cache: right answers in several styles, and what students get wrong."""

import math

import torch
import torch.nn.functional as F
from students import judged_here

from allranks import check
from allranks.model import GREYS
from allranks.serving.cache import attend
from allranks.serving.model import rotate


def attention(layer, x, past):
    def split(linear):
        return linear(x).unflatten(-1, (-1, layer.width)).transpose(1, 2)

    q, k, v = split(layer.q_proj), split(layer.k_proj), split(layer.v_proj)
    before = 0 if past is None else past.shape[3]
    positions = torch.arange(before, before + x.shape[1])
    q, k = rotate(q, positions).to(x.dtype), rotate(k, positions).to(x.dtype)
    new = torch.stack([k, v])
    past = new if past is None else torch.cat([past, new], 3)
    out, _ = attend(q, past[0], past[1], positions, torch.arange(past.shape[3]))
    return layer.o_proj(out.transpose(1, 2).flatten(-2)), past


def with_views(layer, x, past):
    sequences, new, _ = x.shape
    start = past.size(3) if past is not None else 0
    positions = start + torch.arange(new, device=x.device)
    heads = [
        project(x).view(sequences, new, -1, layer.width).permute(0, 2, 1, 3)
        for project in (layer.q_proj, layer.k_proj, layer.v_proj)
    ]
    q, k, v = heads
    q = rotate(q, positions).type_as(x)
    k = rotate(k, positions).type_as(x)
    if past is not None:
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
    all_positions = torch.arange(start + new, device=x.device)
    out = attend(q, k, v, positions, all_positions)[0].to(x.dtype)
    out = out.permute(0, 2, 1, 3).reshape(sequences, new, -1)
    return layer.o_proj(out), torch.stack((k, v))


def with_torchs_attention(layer, x, past):
    q, k, v = (
        p(x).unflatten(-1, (-1, layer.width)).mT.mT.transpose(1, 2)
        for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    start = 0 if past is None else past.shape[-2]
    end = start + x.shape[1]
    positions = torch.arange(start, end)
    q, k = (rotate(t, positions).to(x.dtype) for t in (q, k))
    after = torch.zeros(2, *k.shape[:2], end, layer.width, dtype=x.dtype)
    if start:
        after[:, :, :, :start] = past
    after[0, :, :, start:], after[1, :, :, start:] = k, v
    mask = torch.arange(end)[None, :] <= positions[:, None]
    out = F.scaled_dot_product_attention(q, after[0], after[1], attn_mask=mask, enable_gqa=True)
    return layer.o_proj(out.transpose(1, 2).flatten(2)), after


def write(step, tokens, new):
    fed, pasts = tokens, None
    for _ in range(new):
        logits, pasts = step(fed, pasts)
        fed = logits[:, -1:, :GREYS].argmax(-1)
        tokens = torch.cat([tokens, fed], 1)
    return tokens


def write_first_then_loop(step, tokens, new):
    if new == 0:
        return tokens
    logits, pasts = step(tokens, None)
    written = [logits[:, -1, :GREYS].argmax(dim=-1, keepdim=True)]
    while len(written) < new:
        logits, pasts = step(written[-1], pasts)
        written.append(torch.topk(logits[:, -1, :GREYS], 1).indices)
    return torch.cat([tokens, *written], dim=1)


def write_into_a_buffer(step, tokens, new):
    known = tokens.shape[1]
    result = torch.empty(len(tokens), known + new, dtype=tokens.dtype)
    result[:, :known] = tokens
    pasts, seen = None, 0
    for at in range(known, known + new):
        logits, pasts = step(result[:, seen:at].clone(), pasts)
        seen = at
        allowed = logits[:, -1].clone()
        allowed[:, GREYS:] = -math.inf
        result[:, at] = allowed.argmax(-1)
    return result


RIGHT = [
    (attention, write),
    (with_views, write_first_then_loop),
    (with_torchs_attention, write_into_a_buffer),
]
WRONG = {
    "attention": {
        "positions from 0": (
            "are not those of one pass over all",
            "arange(before, before + x.shape[1])",
            "arange(x.shape[1])",
        ),
        "positions one too far": (
            "are not those of one pass over all",
            "arange(before, before + x.shape[1])",
            "arange(before + 1, before + 1 + x.shape[1])",
        ),
        "position of the last for all": (
            "are not those of one pass over all",
            "arange(before, before + x.shape[1])",
            "full((x.shape[1],), before + x.shape[1] - 1)",
        ),
        "keys not rotated": ("are not those of one pass over all", "rotate(k, positions).to(x.dtype)", "k"),
        "queries not rotated": (
            "are not those of one pass over all",
            "rotate(q, positions).to(x.dtype)",
            "q",
        ),
        "rotated in 16 bits' positions": (
            "are not those of one pass over all",
            "arange(past.shape[3])",
            "arange(past.shape[3]).flip(0)",
        ),
        "values rotated too": (
            "are not those of one pass over all",
            "torch.stack([k, v])",
            "torch.stack([k, rotate(v, positions).to(x.dtype)])",
        ),
        "past rotated again": (
            "are not those of one pass over all",
            "    out, _",
            "    past = torch.stack([rotate(past[0], torch.arange(past.shape[3])).to(x.dtype), past[1]]) if before else past\n    out, _",
        ),
        "past in 32 bits": (
            "a cache keeps the dtype of x",
            "torch.stack([k, v])",
            "torch.stack([k, v]).float()",
            "attend(q, past[0], past[1]",
            "attend(q, past[0].to(x.dtype), past[1].to(x.dtype)",
        ),
        "never converted": ("convert q and k to x.dtype", ".to(x.dtype)", ""),
        "past behind the new": ("are not those of one pass over all", "[past, new]", "[new, past]"),
        "past forgotten": (
            "keep each token once",
            "past = new if past is None else torch.cat([past, new], 3)",
            "past = new",
        ),
        "only the last new token kept": (
            "keep each token once",
            "flatten(-2)), past",
            "flatten(-2)), past[:, :, :, : before + 1]",
        ),
        "old past returned": (
            "keep each token once",
            "past = new if past is None else torch.cat([past, new], 3)",
            "old, past = past, new if past is None else torch.cat([past, new], 3)",
            "flatten(-2)), past",
            "flatten(-2)), past if old is None else old",
        ),
        "no causal mask": (
            "are not those of one pass over all",
            "positions, torch.arange(past.shape[3]))",
            "torch.full_like(positions, past.shape[3]), torch.arange(past.shape[3]))",
        ),
        "the future is seen by one": (
            "are not those of one pass over all",
            "attend(q, past[0], past[1], positions,",
            "attend(q, past[0], past[1], positions + 1,",
        ),
        "itself not seen": (
            "are not those of one pass over all",
            "attend(q, past[0], past[1], positions,",
            "attend(q, past[0], past[1], (positions - 1).clamp(min=0),",
        ),
        "a window of 16": (
            "keep each token once",
            "    out, _",
            "    past = past[:, :, :, -16:]\n    out, _",
            "torch.arange(past.shape[3]))",
            "torch.arange(before + x.shape[1])[-16:])",
        ),
        "keys as values": (
            "are not those of one pass over all",
            "past[0], past[1], positions",
            "past[0], past[0], positions",
        ),
        "keys and values exchanged": (
            "are not those of one pass over all",
            "torch.stack([k, v])",
            "torch.stack([v, k])",
        ),
        "heads mixed with tokens": ("This cannot be checked", ".transpose(1, 2).flatten(-2)", ".flatten(-2)"),
        "heads split the other way": (
            "are not those of one pass over all",
            "unflatten(-1, (-1, layer.width)).transpose(1, 2)",
            "unflatten(-1, (layer.width, -1)).transpose(2, 3).transpose(1, 2)",
        ),
        "o_proj forgotten": (
            "The output has shape",
            "layer.o_proj(out.transpose(1, 2).flatten(-2))",
            "out.transpose(1, 2).flatten(-2)",
        ),
        "first sequence's past for all": (
            "are not those of one pass over all",
            "past[0], past[1], positions",
            "past[0][:1].expand_as(past[0]), past[1][:1].expand_as(past[1]), positions",
        ),
        "heads repeated in the cache": (
            "and attend shares them",
            "torch.stack([k, v])",
            "torch.stack([k, v]).repeat_interleave(q.shape[1] // k.shape[1], 2)",
        ),
        "room for 64 tokens": (
            "keep each token once",
            "flatten(-2)), past",
            "flatten(-2)), F.pad(past, (0, 0, 0, 64 - past.shape[3])) if past.shape[3] < 64 else past",
        ),
        "whole picture each time": (
            "attention keeps seen in the layer",
            "    q, k, v =",
            "    if past is not None:\n        return attention(layer, torch.cat([layer.seen, x], 1), None)\n    layer.seen = x\n    q, k, v =",
        ),
        "past kept in the layer": (
            "attention keeps past in the layer",
            "    before =",
            "    past = getattr(layer, 'past', None) if past is not None else None\n    before =",
            "    return layer",
            "    layer.past = past\n    return layer",
        ),
        "past changed in place": (
            "are not those of one pass over all",
            "    return layer",
            "    past.mul_(1.0).add_(1e-3)\n    return layer",
        ),
        "one new token only": ("are not those of one pass over all", "before + x.shape[1])", "before + 1)"),
        "a view that keeps all": (
            "it is a view of something larger",
            "    return layer",
            "    past = F.pad(past, (0, 0, 0, 512))[:, :, :, : past.shape[3]]\n    return layer",
        ),
        "scaled twice": ("are not those of one pass over all", "attend(q,", "attend(q / layer.width**0.5,"),
    },
    "write": {
        "all tokens each time, no cache": (
            "each later one what the previous step returned",
            "step(fed, pasts)",
            "step(tokens, None)",
        ),
        "all tokens each time, behind the past": (
            "write passes all tokens through step again",
            "step(fed, pasts)",
            "step(tokens, pasts)",
        ),
        "one token each time, also at first": (
            "The tokens are not the likeliest ones",
            "fed, pasts = tokens, None",
            "fed, pasts = tokens[:, -1:], None",
        ),
        "past forgotten": (
            "each later one what the previous step returned",
            "logits, pasts = step",
            "logits, _ = step",
        ),
        "last new one passes too": (
            "the last new one need not",
            "    return tokens",
            "    step(fed, pasts)\n    return tokens",
        ),
        "all of the vocabulary": ("A new token is not a grey", ":GREYS]", "]"),
        "first position": ("The tokens are not the likeliest ones", "-1:,", ":1,"),
        "the least likely": ("The tokens are not the likeliest ones", "argmax", "argmin"),
        "sampled": (
            "The tokens are not the likeliest ones",
            "logits[:, -1:, :GREYS].argmax(-1)",
            "torch.multinomial(logits[:, -1, :GREYS].softmax(-1), 1)",
        ),
        "first sequence for all": (
            "The tokens are not the likeliest ones",
            "tokens = torch.cat",
            "fed = fed[:1].expand_as(fed)\n        tokens = torch.cat",
        ),
        "one too many": ("the last new one need not", "range(new)", "range(new + 1)"),
        "one too few": ("write returned shape", "range(new)", "range(new - 1)"),
        "new ones only": ("write returned shape", "return tokens", "return tokens[:, -new:]"),
        "known ones one by one": (
            "write takes more than",
            "    for _",
            "    for token in tokens[:, :-1].split(1, 1):\n        _, pasts = step(token, pasts)\n        fed = tokens[:, -1:]\n    for _",
        ),
        "last known twice": (
            "each later one what the previous step returned",
            "        tokens = torch.cat",
            "        pasts = pasts if tokens.shape[1] > 1 else None\n        fed = torch.cat([tokens[:, -1:], fed], 1) if pasts is None else fed\n        tokens = torch.cat",
        ),
        "prefill and a step for the same token": (
            "The last known token passes through step twice",
            "    for _",
            "    _, pasts = step(fed, None)\n    fed = fed[:, -1:]\n    for _",
        ),
        "64 tokens in all": ("write takes more than", "range(new)", "range(64)"),
        "stops at grey 0": (
            "write returned shape",
            "        tokens = torch.cat",
            "        if not fed.any():\n            break\n        tokens = torch.cat",
        ),
        "written in place": (
            "The tokens are not the likeliest ones",
            "    return tokens",
            "    tokens[:, 0] = 0\n    return tokens",
        ),
        "sequence by sequence": (
            "each later one what the previous step returned",
            "    fed, pasts",
            "    if len(tokens) > 1:\n        return torch.cat([write(step, one, new) for one in tokens.split(1)])\n    fed, pasts",
        ),
        "new behind the wrong end": (
            "The tokens are not the likeliest ones",
            "[tokens, fed]",
            "[fed, tokens]",
        ),
        "floats": ("write returned torch.float", "    return tokens", "    return tokens.float()"),
    },
}


def test_every_answer_is_told_what_it_is(monkeypatch):
    judged_here(check.lab_06.decode, __name__, monkeypatch)
