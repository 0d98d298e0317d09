"""Full pages shared by equal beginnings: a pool that is judged after every call."""

from allranks.check import exercise, stubs
from allranks.check.lab_06.common import each, must, new_llama, new_tokens, on_ranks
from allranks.check.lab_06.scheduling import alone, served
from allranks.check.labs import is_written
from allranks.serving import Request, Scheduler

PAGE = 4


class Pool:
    """Pages of `page` tokens: free ones, how many requests hold each, and the page of each key."""

    def __init__(self, size, page):
        self.page, self.free = page, list(range(size))
        self.holders = [0] * size
        self.found = {}

    def available(self):
        """How many pages a request could take: free ones, and known ones that nobody holds."""
        idle = (not self.holders[page] for page in self.found.values())
        return len(self.free) + sum(idle)

    def take(self):
        """A page for one request; if none is free, one that nobody holds is forgotten."""
        if not self.free:
            known = self.found.items()
            idle = next(key for key, page in known if not self.holders[page])
            self.free.append(self.found.pop(idle))
        page = self.free.pop()
        self.holders[page] = 1
        return page

    def remember(self, keys, pages):
        """Make full pages known by their keys; of two equal pages the first is kept."""
        for key, page in zip(keys, pages):
            self.found.setdefault(key, page)


class Sharing(Scheduler):
    """A scheduler whose requests share pages through the reader's functions: (keys, share, release)."""

    def __init__(self, pages, page, slots, answers):
        super().__init__(Pool(pages, page), slots)
        self.pool.size = pages
        self.keys, self.share, self.release = answers
        self.contents = {}  # page: all tokens up to its end, as they were computed
        self.reused = []

    def admit(self):
        request = self.waiting[0]
        self.share(self.pool, request)
        self.judge_shared(request)
        more = self.pages(len(request.tokens)) - len(request.pages)
        if more > self.pool.available():
            self.give_back(request)
            request.computed = 0
            return False
        self.reused.append(request.computed)
        request.pages += [self.take() for _ in range(more)]
        self.running.append(self.waiting.popleft())
        self.audit()
        return True

    def grow(self, request):
        while len(request.pages) < self.pages(len(request.tokens)) and request in self.running:
            if self.pool.available():
                request.pages.append(self.take())
            else:
                self.preempt(self.running[-1])
        return request in self.running

    def take(self):
        page = self.pool.take()
        self.contents.pop(page, None)
        return page

    def leave(self, request):
        self.running.remove(request)
        self.give_back(request)

    def give_back(self, request):
        known = dict(self.pool.found)
        self.release(self.pool, list(request.pages))
        must(
            self.pool.found == known,
            "release forgets a key. A page that no request holds keeps its contents until take() needs it.",
        )
        request.pages = []
        self.audit()

    def advance(self, request, count):
        request.computed += count
        computed = request.tokens[: request.computed]
        for number in range(request.computed // self.pool.page):
            self.contents[request.pages[number]] = computed[: (number + 1) * self.pool.page]
        self.pool.remember(self.keys(computed, self.pool.page), request.pages)

    def judge_shared(self, request):
        page, pool, tokens = self.pool.page, self.pool, request.tokens
        where = f"A request of {len(tokens)} tokens"
        must(
            request.computed < len(tokens),
            f"{where} has {request.computed} of them computed after share: the last has to be computed, "
            "whatever is cached, since its logits say what comes next.",
        )
        for number, shared in enumerate(request.pages):
            right = tokens[: (number + 1) * page]
            must(
                self.contents.get(shared) == right,
                f"{where} shares page {shared} of {page} tokens, whose keys and values are those of other "
                "tokens: all tokens up to the end of a page have to be equal, not only those in it.",
            )
        must(
            request.computed <= len(request.pages) * page,
            f"{where} has {request.computed} of them computed after share, on {len(request.pages)} pages.",
        )
        must(
            request.computed or not request.pages,
            f"{where} shares {len(request.pages)} pages of {page}, but `computed` is still 0.",
        )
        begun = request.pages[request.computed // page :]
        must(
            not begun,
            f"{where} will write its token {request.computed} into page {begun[0] if begun else 0}, which is "
            "shared: leave the whole page out, and compute it again.",
        )
        known = [self.contents[page] for page in pool.found.values()]
        most = 0
        while (most + 1) * page < len(tokens) and tokens[: (most + 1) * page] in known:
            most += 1
        must(
            len(request.pages) == most,
            f"{where} finds {len(request.pages)} pages; {most} full ones are cached from the first token.",
        )
        must(
            request.computed == most * page,
            f"{where} shares {most} pages of {page}, but `computed` is {request.computed}.",
        )
        self.audit([request])

    def audit(self, others=()):
        """Holders are counted, and a page is free exactly if nobody holds it and no key finds it."""
        pool = self.pool
        known = set(pool.found.values())
        for page in range(pool.size):
            held = sum(request.pages.count(page) for request in (*self.running, *others))
            must(
                pool.holders[page] == held,
                f"Page {page} is held by {held} requests, but pool.holders counts {pool.holders[page]}: "
                "share counts up for each page, release counts down.",
            )
            free = pool.free.count(page)
            must(not (free and held), f"Page {page} is free, but {held} requests still hold it.")
            must(
                not (free and page in known),
                f"Page {page} is free, but a key still finds it: once taken, it holds another text. A "
                "known page stays out of pool.free; take() forgets it when necessary.",
            )
            must(
                held or free or page in known,
                f"Page {page} is lost: no request holds it, no key finds it, and it is not free.",
            )
            must(free < 2, f"Page {page} is in pool.free twice.")


def _judge_keys(keys):
    def of(*tokens):
        found = keys(list(tokens), 2)
        try:
            stubs.is_returned(found, "a list of keys", "keys")
        except AssertionError as sentence:
            must(False, str(sentence))
        must(isinstance(found, list | tuple), f"keys returned {type(found).__name__}, not a list.")
        full = len(tokens) // 2
        must(
            len(found) == full,
            f"{len(tokens)} tokens fill {full} pages of 2, but there are {len(found)} keys: a page that "
            "is not full has none.",
        )
        return list(found)

    must(of(1, 2, 3, 4) == of(1, 2, 3, 4), "The same tokens get different keys the second time.")
    must(
        of(1, 2, 3, 4)[1] != of(5, 6, 3, 4)[1],
        "The page [3, 4] has one key after [1, 2] and after [5, 6], but different keys and values: a key "
        "needs the key before it.",
    )
    must(
        of(1, 2, 3, 4, 5, 6)[2] != of(9, 2, 3, 4, 5, 6)[2],
        "A key depends only on the page before it, not on all of them: chain the keys.",
    )
    must(of(7, 7, 7, 7)[0] != of(7, 7, 7, 7)[1], "Both pages of [7, 7, 7, 7] have the same key.")
    must(of(1, 2, 3, 4, 5)[:2] == of(1, 2, 3, 4), "The keys of full pages change when a token is added.")
    must(of(1, 23)[0] != of(12, 3)[0], "The tokens [1, 23] and [12, 3] have the same key.")
    for one, other in ALIKE:
        must(
            of(*one)[-1] != of(*other)[-1],
            f"The tokens {one} and {other} have one key: it needs every token, in its order.",
        )
    pages = [of(first, second)[0] for first in range(24) for second in range(24)]
    must(
        len(set(pages)) == len(pages),
        f"{len(pages)} different pages have {len(set(pages))} keys: two requests would share a page by "
        "accident. Keep the whole hash, or the tokens themselves.",
    )


ALIKE = (([5, 6], [6, 5]), ([1, 4], [2, 3]), ([7, 1], [7, 2]), ([1, 7], [2, 7]), ([3, 300], [3, 44]))


def _judge_calls(keys, share, release):
    """Try `share` and `release` on pools that a server rarely has: a key between two others is forgotten."""
    tokens = list(range(3 * PAGE + 1))
    pool, known = Pool(6, PAGE), keys(tokens, PAGE)
    pool.free, pool.found = [3, 4, 5], {known[0]: 0, known[2]: 2}
    request = Request(tokens, 1)
    share(pool, request)
    must(
        request.pages == [0] and request.computed == PAGE,
        f"Of three pages the second is forgotten; share takes {len(request.pages)} and sets `computed` to "
        f"{request.computed}: stop at the first key that is not found, since what follows a gap cannot be "
        "used.",
    )
    pool = Pool(2, PAGE)
    pool.free, pool.holders = [0], [0, 2]
    for holders, free in ((1, [0]), (0, [0, 1])):
        release(pool, [1])
        must(
            pool.holders[1] == holders and sorted(pool.free) == free,
            f"A page that no key finds has two holders, and after {2 - holders} of them let go "
            f"pool.holders counts {pool.holders[1]} and pool.free is {pool.free}: it is free once the "
            "last one lets go.",
        )


def new_prompts():
    """Requests (prompt, new, seed, arrival) that begin alike, or only look alike."""
    first, second, third, other = (new_tokens(PAGE).tolist() for _ in range(4))
    other[0] = (first[0] + 1) % 17
    texts = (
        first + second,
        first + second,
        first + second + third[:3],
        other + second,
        first + second + third,
    )
    texts += (first[:1], first + third + second, first + second, other + second + third, first + second)
    return [(text, 3 + number % 4, number, number // 2 * 3) for number, text in enumerate(texts)]


def _shared(model, load, answers, pages, slots):
    _judge_keys(answers[0])
    scheduler = Sharing(pages, PAGE, slots, answers)
    tokens = served(model, load, scheduler)
    scheduler.audit()
    _judge_calls(*answers)
    return tokens, sum(scheduler.reused)


@exercise
def prefixes(keys, share, release):
    """`keys(tokens, page)`, `share(pool, request)` and `release(pool, pages)`: a prefix cache."""
    answers = keys, share, release
    is_written(*answers)
    cases = [(new_llama(), new_prompts(), answers, pages, 3) for pages in (24, 9)]
    for (model, load, *_), (found, reused) in zip(cases, on_ranks(each, _shared, cases)[0], strict=True):
        for number, (tokens, right) in enumerate(zip(found, alone(model, load), strict=True)):
            assert tokens == right, (
                f"Request {number} has other tokens than without a prefix cache: a shared page was written."
            )
        assert reused, "No token was found in the cache."
    return "Equal beginnings share full pages, whose holders are counted; no token changes."
