"""Which pages of the cache are free, who holds the others, and what does a new request find in them?

Only a full page has a key: a digest of its tokens and of all before them, because keys and values depend on
those too. A page that nobody holds keeps its contents until it is needed, the least recently used first.
Standard library only: the contents lie in `PagedCache`.
"""

from hashlib import sha256
from itertools import takewhile


def page_keys(tokens, page):
    """A key for each full page of `tokens`; it stands for all tokens up to the end of the page."""
    key, keys = b"", []
    for end in range(page, len(tokens) + 1, page):
        key = sha256(key + repr(tokens[end - page : end]).encode()).digest()
        keys.append(key)
    return keys


class Pool:
    """`size` pages of `page` tokens; with `prefixes` full pages are found again by their tokens."""

    def __init__(self, size, page, prefixes=False):
        if size < 1 or page < 1:
            raise ValueError(f"{size} pages of {page} tokens: a pool needs at least one page of one token")
        self.size, self.page, self.prefixes = size, page, prefixes
        self.free = list(reversed(range(size)))
        self.holders = [0] * size  # requests that hold a page
        self.found, self.key = {}, {}  # the page of a key, and the key of a page
        self.idle = {}  # pages with a key that nobody holds, the least recently used first

    @property
    def available(self):
        return len(self.free) + len(self.idle)

    def take(self):
        """Return a page for one request; if no page is free, one that is idle is forgotten."""
        if self.free:
            page = self.free.pop()
        else:
            page = next(iter(self.idle))
            del self.idle[page], self.found[self.key.pop(page)]
        self.holders[page] = 1
        return page

    def share(self, tokens):
        """Hold and return the pages that begin as `tokens`; the last token is never found.

        It has to be computed whatever is cached, for its logits say what comes next.
        """
        keys = page_keys(tokens[:-1], self.page)
        pages = [self.found[key] for key in takewhile(self.found.__contains__, keys)]
        for page in pages:
            self.idle.pop(page, None)
            self.holders[page] += 1
        return pages

    def remember(self, pages, tokens):
        """Make a request's full pages known by their keys; of two equal pages the first is kept."""
        if self.prefixes:
            for page, key in zip(pages, page_keys(tokens, self.page), strict=False):
                if key not in self.found:
                    self.found[key], self.key[page] = page, key

    def release(self, pages):
        """Give back a request's pages. The last becomes idle first, so that no page outlives its prefix."""
        for page in reversed(pages):
            self.holders[page] -= 1
            if self.holders[page] == 0:
                if page in self.key:
                    self.idle[page] = None
                else:
                    self.free.append(page)
