"""What does a model remember of a sequence while it writes: bytes for each token?

Attention at a new token needs keys and values of all tokens before it, in every layer. They are kept once
they are computed; nothing else of the past is.
"""

from ..inputs import quantity, whole


def kv_cache_bytes(model, tokens=1, sequences=1, tensor_parallel=1, element=2):
    """Bytes on a rank, for each of the tokens 2 · layers · kv_heads · head_width · element.

    Multi-head attention has as many heads of keys as of queries; grouped-query attention shares one among
    several (Ainslie et al. 2023). A rank holds at least one head: beyond `kv_heads` ranks there are copies.
    """
    whole("tokens", tokens, 0), whole("sequences", sequences, 0), quantity("element", element, positive=True)
    heads = -(-model.kv_heads // whole("tensor_parallel", tensor_parallel))
    return 2 * model.layers * heads * model.head_width * element * tokens * sequences


def latent_cache_bytes(layers, latent=512, rotary=64, tokens=1, sequences=1, element=2):
    """Bytes for `sequences` of `tokens` tokens under multi-head latent attention: (latent + rotary) a layer.

    One vector from which keys and values of all heads are made, and one key part that carries the position:
    512 + 64 elements in DeepSeek-V3 (DeepSeek-AI 2024, sections 2.1.1 and 4.2). It belongs to no head, so
    every tensor-parallel rank holds all of it.
    """
    whole("layers", layers), whole("latent", latent), whole("rotary", rotary, 0)
    whole("tokens", tokens, 0), whole("sequences", sequences, 0), quantity("element", element, positive=True)
    return layers * (latent + rotary) * element * tokens * sequences
