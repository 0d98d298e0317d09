"""Lab 06, a prefix cache: right answers in several styles, and what students get wrong."""

import hashlib
from functools import partial
from hashlib import sha256
from itertools import takewhile

from students import judged_here

from allranks import check


def keys(tokens, page):
    found, before = [], b""
    for end in range(page, len(tokens) + 1, page):
        before = sha256(before + str(tokens[end - page : end]).encode()).digest()
        found.append(before)
    return found


def share(pool, request):
    for key in keys(request.tokens[:-1], pool.page):
        if key not in pool.found:
            break
        page = pool.found[key]
        pool.holders[page] += 1
        request.pages.append(page)
    request.computed = len(request.pages) * pool.page


def release(pool, pages):
    for page in pages:
        pool.holders[page] -= 1
        if pool.holders[page] == 0 and page not in pool.found.values():
            pool.free.append(page)


def whole_prefixes(tokens, page):
    return [tuple(tokens[: (number + 1) * page]) for number in range(len(tokens) // page)]


def running_hash(tokens, page):
    digest, found = hashlib.blake2b(), []
    for number in range(len(tokens) // page):
        digest.update(repr(list(tokens[number * page : (number + 1) * page])).encode())
        found.append(digest.copy().hexdigest())
    return found


def nested_tuples(tokens, page):
    key, found = (), []
    for first in range(0, len(tokens) - page + 1, page):
        key = (key, *tokens[first : first + page])
        found.append(key)
    return found


def share_by(keys, pool, request):
    usable = (len(request.tokens) - 1) // pool.page
    known = list(takewhile(pool.found.__contains__, keys(request.tokens, pool.page)[:usable]))
    request.pages = [pool.found[key] for key in known]
    for page in request.pages:
        pool.holders[page] += 1
    request.computed = len(known) * pool.page


def release_reversed(pool, pages):
    kept = set(pool.found.values())
    for page in reversed(list(pages)):
        pool.holders[page] -= 1
        if not pool.holders[page] and page not in kept:
            pool.free.append(page)


RIGHT = [
    (keys, share, release),
    (whole_prefixes, partial(share_by, whole_prefixes), release_reversed),
    (running_hash, partial(share_by, running_hash), release),
    (nested_tuples, partial(share_by, nested_tuples), release_reversed),
]
WRONG = {
    ("keys", "share", "release"): {
        "each page by itself": ("a key needs the key before it", "sha256(before + str", "sha256(str"),
        "the page before only": (
            "A key depends only on the page before",
            "        found.append(before)",
            "        found.append(before)\n        before = str(tokens[end - page : end]).encode()",
        ),
        "first page only": (
            "Both pages of [7",
            "sha256(before + str(tokens[end - page : end])",
            "sha256(str(tokens[:page] + tokens[end - page : end])",
        ),
        "a set of tokens": (
            "it needs every token",
            "str(tokens[end - page : end])",
            "str(sorted(tokens[end - page : end]))",
        ),
        "the sum of tokens": (
            "it needs every token",
            "sha256(before + str(tokens[end - page : end]).encode()).digest()",
            "(end, sum(tokens[:end]))",
            'b""',
            "0",
        ),
        "the last token of a page": (
            "A key depends only on the page before",
            "tokens[end - page : end]",
            "tokens[end - 1 : end]",
        ),
        "first token of a page": (
            "it needs every token",
            "tokens[end - page : end]",
            "tokens[end - page : end - page + 1]",
        ),
        "the length": ("a key needs the key before it", "str(tokens[end - page : end])", "str(end)"),
        "digits run together": (
            "[1, 23] and [12, 3] have",
            "str(tokens[end - page : end]).encode()",
            "''.join(map(str, tokens[end - page : end])).encode()",
        ),
        "tokens as bytes": (
            "it needs every token",
            "str(tokens[end - page : end]).encode()",
            "bytes(t % 256 for t in tokens[end - page : end])",
        ),
        "the last page too, if not full": (
            "a page that is not full has none",
            "len(tokens) + 1, page",
            "len(tokens) + page, page",
        ),
        "a full last page left out": (
            "a page that is not full has none",
            "len(tokens) + 1, page",
            "len(tokens), page",
        ),
        "pages of 16": (
            "a page that is not full has none",
            "range(page, len(tokens) + 1, page)",
            "range(16, len(tokens) + 1, 16)",
            "end - page",
            "end - 16",
        ),
        "a key for each token": (
            "a page that is not full has none",
            "range(page, len(tokens) + 1, page)",
            "range(1, len(tokens) + 1)",
            "end - page",
            "end - 1",
        ),
        "in another order": (
            "full ones are cached from the first token",
            "    return found\n",
            "    return found[::-1]\n",
        ),
        "eight bits of the hash": (
            "two requests would share a page by accident",
            ".digest()",
            ".digest()[:1]",
        ),
        "hash of the process": (
            "two requests would share a page by accident",
            "sha256(before + str(tokens[end - page : end]).encode()).digest()",
            "hash((before, tuple(tokens[end - page : end]))) % 256",
            'b""',
            "0",
        ),
        "random": (
            "✗",
            ".digest()\n",
            ".digest() + bytes([id(found) % 251])\n",
        ),
        "a set": ("keys returned set", "    return found\n", "    return set(found)\n"),
        "all tokens computed": (
            "since its logits say what comes next",
            "request.tokens[:-1]",
            "request.tokens",
        ),
        "two tokens left": (
            "full ones are cached from the first token",
            "request.tokens[:-1]",
            "request.tokens[:-2]",
        ),
        "a page always left": (
            "full ones are cached from the first token",
            "request.tokens[:-1]",
            "request.tokens[: -pool.page]",
        ),
        "gaps skipped": (
            "not found, since what follows a gap",
            "            break",
            "            continue",
        ),
        "no holder counted": ("share counts up for each page", "        pool.holders[page] += 1\n", ""),
        "one holder whatever": (
            "share counts up for each page",
            "pool.holders[page] += 1",
            "pool.holders[page] = 1",
        ),
        "computed in pages": (
            "leave the whole page out",
            "len(request.pages) * pool.page",
            "len(request.pages)",
        ),
        "computed forgotten": (
            "but `computed` is still",
            "    request.computed = len(request.pages) * pool.page\n",
            "",
        ),
        "computed is all but one": (
            "of them computed after share, on",
            "len(request.pages) * pool.page",
            "len(request.tokens) - 1",
        ),
        "the key is taken out": (
            "full ones are cached from the first token",
            "page = pool.found[key]",
            "page = pool.found.pop(key)",
        ),
        "first page only shared": (
            "full ones are cached from the first token",
            "        request.pages.append(page)\n",
            "        request.pages.append(page)\n        break\n",
        ),
        "nothing is shared": (
            "full ones are cached from the first token",
            "if key not in pool.found",
            "if True",
        ),
        "a page of its own, copied": (
            "all tokens up to the end of a page have to be equal",
            "page = pool.found[key]",
            "page = pool.take()",
        ),
        "held pages only": (
            "full ones are cached from the first token",
            "if key not in pool.found",
            "if key not in pool.found or not pool.holders[pool.found[key]]",
        ),
        "idle pages only": (
            "full ones are cached from the first token",
            "if key not in pool.found",
            "if key not in pool.found or pool.holders[pool.found[key]]",
        ),
        "freed while held": ("A page that no key finds has two holders", "pool.holders[page] == 0 and ", ""),
        "freed while found": (
            "A known page stays out of pool.free",
            " and page not in pool.found.values()",
            "",
        ),
        "never freed": (
            "and it is not free",
            "            pool.free.append(page)",
            "            pass",
        ),
        "never counted down": (
            "share counts up for each page",
            "        pool.holders[page] -= 1\n",
            "",
        ),
        "holders at 0 at once": (
            "share counts up for each page",
            "pool.holders[page] -= 1",
            "pool.holders[page] = 0",
        ),
        "found forgotten": (
            "request holds keeps its contents until take() needs",
            "        if pool.holders[page] == 0 and page not in pool.found.values():\n",
            "        if pool.holders[page] == 0:\n            pool.found = {k: p for k, p in pool.found.items() if p != page}\n",
        ),
        "all keys forgotten": (
            "request holds keeps its contents until take() needs",
            "        if pool.holders",
            "        pool.found.clear()\n        if pool.holders",
        ),
        "a key is looked for, not a page": (
            "A known page stays out of pool.free",
            "pool.found.values()",
            "pool.found",
        ),
        "first page only released": (
            "share counts up for each page",
            "    for page in pages:\n",
            "    for page in pages[:1]:\n",
        ),
        "last page always free": (
            "A known page stays out of pool.free",
            "            pool.free.append(page)",
            "            pool.free.append(page)\n    if pages and pages[-1] not in pool.free:\n        pool.free.append(pages[-1])",
        ),
        "at one holder": (
            "A page that no key finds has two holders",
            "pool.holders[page] == 0",
            "pool.holders[page] <= 1",
        ),
        "freed twice": (
            "is in pool.free twice",
            "            pool.free.append(page)",
            "            pool.free += [page, page]",
        ),
        "the caller's list emptied": (
            "share counts up for each page",
            "    for page in pages:\n",
            "    for page in [pages.pop() for _ in list(pages)][:-1]:\n",
        ),
    }
}


def test_every_answer_is_told_what_it_is(monkeypatch):
    judged_here(check.lab_06.prefixes, __name__, monkeypatch)
