"""How can several ranks hold one cache? Each keeps some of the tokens, and only partial results travel.

Every rank has the query. Each attends to its own keys, and the parts are merged by their sums of
exponentials, as in Flash-Decoding (Dao et al. 2023); what is sent does not depend on how much is cached.
"""

import torch
import torch.distributed as dist

from .cache import Cache, attend


def merge(outs, lses):
    """Attention to all keys from the attention to each part: (parts, …, width) and (parts, …, 1)."""
    return ((lses - lses.logsumexp(0)).exp() * outs).sum(0)


class SlicedCache(Cache):
    """The tokens whose position is this rank's modulo the number of ranks; `capacity` counts all of them."""

    def __init__(self, shape, sequences, capacity, **options):
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        super().__init__(shape, sequences, -(-capacity // self.ranks), **options)

    def held(self, length):
        """How many of the first `length` tokens this rank holds."""
        return len(range(self.rank, length, self.ranks))

    def attend(self, layer, q, k, v, positions):
        mine = positions % self.ranks == self.rank
        first, last = self.held(self.length), self.held(self.length + len(positions))
        self.stored[layer, :, :, :, first:last] = torch.stack([k, v])[:, :, :, mine]
        keys, values = self.read(layer, last)
        key_positions = self.rank + self.ranks * torch.arange(last, device=q.device)
        part = torch.cat(attend(q, keys, values, positions, key_positions), -1)
        parts = part.new_empty(self.ranks, *part.shape)
        dist.all_gather_single(parts, part[None])
        return merge(parts[..., :-1], parts[..., -1:])
