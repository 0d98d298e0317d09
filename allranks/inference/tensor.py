"""How can several ranks share a decode step, and what does it send? Tensor parallelism, in one axis or two.

The model: each rank reads and computes a slice of every layer (`tensor_slice`), as in `roofline`, and the
ranks meet as `tensor_messages` says; `next_token` has the seconds. The layouts of a feed-forward are those of
Pope et al. 2022, section 3.2, counted exactly and in the published form.
"""

import math
from collections import namedtuple

from .. import transformer
from ..inputs import one_of, quantity, whole

LAYOUTS = ("1D", "2D", "gathered")


def tensor_slice(model, ranks):
    """The `Transformer` that one of `ranks` tensor-parallel ranks computes.

    Heads, columns of the feed-forward and vocabulary are divided, norms and the residual stream are not. A
    rank holds at least one head of keys: beyond `kv_heads` ranks there are copies. So `step`, `weight_bytes`,
    `largest_batch`, `transformer.parameters` and `memory.kv_cache_bytes` of the slice are those of a rank.
    """
    whole("ranks", ranks)
    for name in ("heads", "feed_forward", "vocabulary"):
        if getattr(model, name) % ranks:
            raise ValueError(
                f"{ranks} ranks cannot share {getattr(model, name)} ({name}) evenly: "
                "take a number of ranks that divides it"
            )
    if model.kv_heads % ranks and ranks % model.kv_heads:
        raise ValueError(
            f"{ranks} ranks cannot share {model.kv_heads} (kv_heads) evenly: "
            "one number must divide the other; where there are more ranks, they hold copies"
        )
    return transformer.Transformer(
        model.layers, model.hidden, model.heads // ranks, max(1, model.kv_heads // ranks), model.head_width,
        model.feed_forward // ranks, model.vocabulary // ranks, model.sequence, model.gated, model.tied,
        model.biases, model.learned_positions, model.experts, model.active_experts,
    )  # fmt: skip


class Messages(namedtuple("Messages", "all_reduces nbytes gathered")):
    """All-reduces of `nbytes` each, and the bytes that one all-gather ends with."""


def tensor_messages(model, tokens=1, element=2):
    """The `Messages` of a tensor-parallel step over `tokens` tokens, the same for any number of ranks.

    Two all-reduces of tokens · hidden elements a layer, one more after the embedding, and an all-gather of
    the logits (Shoeybi et al. 2019, section 3, forward only): 2L + 1 and one, as `allranks.serving` and vLLM
    do. An engine that keeps embedding and output layer whole on every rank, as gpt-fast, sends the 2L of the
    layers alone; each rank then reads the whole output layer.
    """
    whole("tokens", tokens), quantity("element", element, positive=True)
    return Messages(
        2 * model.layers + 1, tokens * model.hidden * element, tokens * model.vocabulary * element
    )


def stationary_elements(tokens, hidden, feed_forward, x, y):
    """Elements that a rank sends for a feed-forward whose weights stay where they are, on x · y ranks.

    The two matrices are cut in x along `hidden` and in y along `feed_forward`. Activations are gathered and
    summed over y, hidden ones over x: 2·tokens·(h/x·(y−1)/y + f/y·(x−1)/x). 1D is x = 1, the traffic of one
    all-reduce (Pope et al. 2022, sections 3.2.1 and 3.2.2).
    """
    whole("tokens", tokens), whole("hidden", hidden), whole("feed_forward", feed_forward)
    whole("x", x), whole("y", y)
    return 2 * tokens * (hidden * (y - 1) + feed_forward * (x - 1)) / (x * y)


def gathered_elements(tokens, hidden, feed_forward, ranks, together):
    """Elements that a rank sends for a feed-forward whose weights `together` ranks gather.

    Those ranks divide the tokens; the other axis, ranks / together, is 1D. Weights 2hf(k−1)/n and activations
    2h·tokens/k·(m−1)/m, with n = `ranks`, k = `together`, m = n/k (Pope et al. 2022, section 3.2.3).
    """
    whole("tokens", tokens), whole("hidden", hidden), whole("feed_forward", feed_forward)
    whole("ranks", ranks), whole("together", together, 1, ranks)
    if ranks % together:
        raise ValueError(f"together must divide ranks = {ranks}, not be {together}")
    weights = 2 * hidden * feed_forward * (together - 1) / ranks
    rest = ranks // together
    return weights + 2 * hidden * tokens * (rest - 1) / ranks


def layout_elements(layout, tokens, hidden, feed_forward, ranks):
    """Elements that a rank sends for a feed-forward of two matrices, n ranks, the layout's best mesh.

    "1D": 2·tokens·h. "2D": 4·tokens·√(hf/n) with x = √(nh/f), hence 8·tokens·h/√n for f = 4h. "gathered":
    4h√(tokens·f/n), weights gathered by √(tokens·n/f) ranks, for tokens from f/n to f·n. As in Pope et al.
    2022, section 3.2, (k−1)/k counts as 1, and a mesh need not be whole: these are the published forms of the
    two functions above, which count exactly.
    """
    one_of("layout", layout, LAYOUTS), whole("tokens", tokens), whole("hidden", hidden)
    whole("feed_forward", feed_forward), whole("ranks", ranks)
    if layout == "1D":
        return 2 * tokens * hidden
    if layout == "2D":
        return 4 * tokens * math.sqrt(hidden * feed_forward / ranks)
    return 4 * hidden * math.sqrt(tokens * feed_forward / ranks)
