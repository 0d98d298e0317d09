"""How can a cache grow without a reserved place? In pages of one pool, found through a table.

A sequence gets a page when its last one is full (PagedAttention, Kwon et al. 2023, section 4). Attention
reads the pages in the table's order, gathered into one tensor; real kernels read them where they lie.
"""

import torch

from .cache import Cache


class PagedCache(Cache):
    """Keys and values of `sequences` in a pool of `pages` pages of `page` tokens; all are equally long."""

    def __init__(self, shape, sequences, pages, page=32, **options):
        super().__init__(shape, pages, page, **options)  # a page lies where a dense cache has a sequence
        self.page, self.free = page, list(range(pages))
        self.tables = torch.empty(sequences, 0, dtype=torch.long)

    def reserve(self, length):
        """Give every sequence the pages that `length` tokens need; ValueError if the pool has too few."""
        sequences, held = self.tables.shape
        more = max(0, -(-length // self.page) - held)
        if more * sequences > len(self.free):
            raise ValueError(
                f"{sequences} sequences of {length} tokens need {more * sequences} more pages of {self.page} "
                f"tokens, and {len(self.free)} are free: enlarge the pool, or take fewer sequences"
            )
        taken = [[self.free.pop() for _ in range(more)] for _ in range(sequences)]
        self.tables = torch.cat([self.tables, torch.tensor(taken).long().view(sequences, more)], 1)

    def append(self, layer, k, v):
        end = self.length + k.shape[2]
        self.reserve(end)
        positions = torch.arange(self.length, end)
        pages, slots = self.tables[:, positions // self.page], positions % self.page
        for kind, new in enumerate((k, v)):
            self.stored[layer, kind][pages, :, slots] = new.transpose(1, 2)

    def read(self, layer, length):
        gathered = self.stored[layer][:, self.tables]  # keys and values, sequences, pages, heads, page, width
        return gathered.transpose(2, 3).flatten(3, 4)[:, :, :, :length]
