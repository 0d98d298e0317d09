"""The exercises of the chapter on the KV cache."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from allranks import hardware, inference, memory
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.transformer import PRESETS, parameters

LLAMA, TOKENS = PRESETS["llama3-8b"], 8192


@exercise
def window(answer):
    """`answer(buffer, position, token)` writes `token` and returns the rows that attention reads."""
    for rows in (5, 1):
        buffer, tokens = torch.full((rows, 3), torch.nan), torch.arange(36.0).view(12, 3)
        for position, token in enumerate(tokens):
            read = answer(buffer, position, token)
            where = f"With a window of {rows}, at position {position}"
            right = tokens[max(0, position + 1 - rows) : position + 1]
            assert torch.is_tensor(read) and read.ndim == 2, (
                f"{where}, return the rows to read, a tensor (tokens, 3); got {type(read).__name__}."
            )
            assert not read.isnan().any(), f"{where}, a row is read before it was ever written."
            assert len(read) <= rows, (
                f"{where}, {len(read)} rows are read, but old tokens have left the window."
            )
            written = (buffer == token).all(1).sum()
            assert written, f"{where}, `buffer` does not contain the new token: write it in place."
            ordered = read[read[:, 0].argsort()]
            assert torch.equal(ordered, right), (
                f"{where}, the rows are not the last {len(right)} tokens: which row may be overwritten?"
            )
    return "The newest token takes the row of the oldest, and nothing else moves."


@exercise
def absorption(answer):
    """`answer(query, up_key, latents)`: scores (heads, tokens) without making a key."""
    draw = torch.Generator().manual_seed(0)
    heads, width, latent, tokens = 4, 8, 16, 100
    query = torch.randn(heads, width, generator=draw)
    up_key = torch.randn(heads, width, latent, generator=draw)
    latents = torch.randn(tokens, latent, generator=draw)
    keys = torch.einsum("hdc,tc->htd", up_key, latents)
    with FlopCounterMode(display=False) as counter:
        scores = answer(query, up_key, latents)
    assert torch.is_tensor(scores) and scores.shape == (heads, tokens), (
        f"The scores have shape {getattr(scores, 'shape', scores)}; expected ({heads}, {tokens}), one for "
        "each head and token."
    )
    assert torch.allclose(scores, (keys @ query[..., None])[..., 0], atol=1e-4), (
        "Those are not the products of each head's query with its keys, `up_key @ latent`."
    )
    least, plain = 2 * heads * latent * (width + tokens), 2 * heads * width * tokens * (latent + 1)
    used = counter.get_total_flops()
    assert used <= least, (
        f"The scores are right, but took {used:,} FLOPs, as computing all keys does ({plain:,}); {least:,} "
        "are enough. Which product comes first?"
    )
    return f"{used:,} FLOPs instead of {plain:,}: no keys were computed."


@exercise
def largest_batch(answer):
    """`answer`: sequences of 8,192 tokens of Llama 3 8B that fit into an H100 beside its weights."""
    capacity = hardware.accelerator("h100").memory
    right = inference.largest_batch(LLAMA, TOKENS, capacity)
    a_sequence = memory.kv_cache_bytes(LLAMA, TOKENS)
    every_head = memory.kv_cache_bytes(LLAMA._replace(kv_heads=LLAMA.heads), TOKENS)
    is_number(answer)
    assert answer != capacity // a_sequence, "The weights need room too: 2 bytes for each parameter."
    free = capacity - 2 * parameters(LLAMA)
    assert answer != free // every_head, "Keys and values have only 8 heads here, not 32."
    assert answer != free // (a_sequence // 2), "Keys and values are two tensors: a cache is twice as large."
    assert not right < answer <= right + 1, f"{answer:g} sequences do not quite fit: round down."
    assert answer == right, (
        f"{answer:g} is not right: how much memory do the weights leave, and how much does a sequence need?"
    )
    return f"{right}: {free / 1e9:.1f} GB are free, and a sequence needs {a_sequence / 1e9:.2f} GB."
