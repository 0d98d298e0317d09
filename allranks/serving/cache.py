"""What does a model remember between two tokens? Keys and values of every layer, and nothing else.

Tensors are (sequences, heads, tokens, width); keys and values may have fewer heads than queries.
"""

import torch


def attend(q, k, v, positions, key_positions):
    """Attention of the queries at `positions` to the keys at `key_positions` that are not later.

    Return the output, shaped as `q`, and for each query the log of its sum of exponentials, (…, 1). A query
    that sees no key gets zeros and −∞. Queries that share keys are one matrix (Ainslie et al. 2023).
    """
    (kv_heads, width), new = (k.shape[1], k.shape[-1]), q.shape[2]
    together = q.unflatten(1, (kv_heads, -1)).flatten(2, 3)
    scores = (together @ k.mT / width**0.5).unflatten(2, (-1, new))
    scores = scores.masked_fill(key_positions > positions[:, None], -torch.inf)
    lse = scores.logsumexp(-1, keepdim=True)
    weights = (scores - lse.nan_to_num(neginf=0.0)).exp()
    out = (weights.flatten(2, 3) @ v).unflatten(2, (-1, new))
    return out.flatten(1, 2), lse.flatten(1, 2)


class Cache:
    """Keys and values of all layers, for `sequences` sequences of at most `capacity` tokens each."""

    def __init__(self, shape, sequences, capacity, **options):
        heads, width = shape.kv_heads, shape.head_width
        sizes = (shape.layers, 2, sequences, heads, capacity, width)
        self.stored = torch.zeros(sizes, **options)
        self.capacity, self.length = capacity, 0

    def append(self, layer, k, v):
        """Write the keys and values of new tokens behind those of the past."""
        start, end = self.length, self.length + k.shape[2]
        if end > self.capacity:
            raise ValueError(
                f"{start} tokens are cached and {k.shape[2]} arrive, but the "
                f"capacity is {self.capacity}: enlarge the cache or keep a window"
            )
        self.stored[layer, :, :, :, start:end] = torch.stack([k, v])

    def read(self, layer, length):
        """Keys and values of the first `length` tokens."""
        return self.stored[layer, :, :, :, :length]

    def attend(self, layer, q, k, v, positions):
        self.append(layer, k, v)
        length = self.length + k.shape[2]
        keys, values = self.read(layer, length)
        key_positions = torch.arange(length, device=q.device)
        return attend(q, keys, values, positions, key_positions)[0]
