"""The checks of Lab 06: the solved lab's own answers are right, the usual wrong ones get a hint.

Answers for one rank are judged in this process, and all answers for two ranks in one world; that the checks
start ranks of their own is shown once for each task.
"""

import contextlib
import functools
import random
import types

import pytest
import solved
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks import check, inference, launch, memory
from allranks.check import labs
from allranks.check.lab_06 import common, loads, pages, scheduling
from allranks.model import GREYS
from allranks.serving import Pool, Request, Scheduler, page_keys
from allranks.serving.cache import attend
from allranks.serving.model import rotate

ANSWERS = solved.answers("serving")
TASKS = {
    "decode": ["attention", "write"],
    "bytes_and_requests": ["token_bytes", "fitting"],
    "scheduler": ["admit", "grow", "preempt", "finish"],
    "prefixes": ["keys", "share", "release"],
    "sliced": ["cut", "one_layer", "attention"],
    "plan": ["plan"],
}
keep, needs_of = ANSWERS["keep"], ANSWERS["token_bytes"]


def rebound(function, **others):
    """The function, calling `others` in the place of the solved lab's functions of these names."""
    names = function.__globals__ | others
    return types.FunctionType(function.__code__, names, function.__name__, function.__defaults__)


@contextlib.contextmanager
def in_this_process():
    """Checks start no ranks: what one rank would run, this process does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "run_on_ranks", lambda test, *args, world_size, **_: [test(*args)])
        yield


def line_of(task, **changed):
    """The line about the solved lab's answers, some of them changed, judged in this process."""
    answers = [(ANSWERS | changed)[name] for name in TASKS[task]]
    with in_this_process():
        return check.verdict(getattr(check.lab_06, task).__wrapped__, *answers)


@pytest.fixture(autouse=True)
def the_same_numbers_in_every_run():
    random.seed(6)


ALONE = []  # (task, what is said, the answers that differ from the solved lab's)


def told(said, task, **changed):
    ALONE.append(pytest.param(task, said, changed, id=f"{task}-{len(ALONE)}"))


# Decode with a cache


def attention(begin=None, keep=None, late=False, heads=False, merged=False, rows=None):
    """The solved lab's attention, with a mistake."""

    def attended(layer, x, past):
        before = 0 if past is None else past.shape[3]
        start = begin(before) if begin else before
        positions = torch.arange(start, start + x.shape[1])
        order = torch.arange(before, before + x.shape[1])
        linears = layer.q_proj, layer.k_proj, layer.v_proj
        q, k, v = (linear(x).unflatten(-1, (-1, layer.width)).transpose(1, 2) for linear in linears)
        q = rotate(q, positions).to(x.dtype)
        if not late:
            k = rotate(k, positions).to(x.dtype)
        if heads:
            k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
        new = torch.stack([k, v])
        past = new if past is None else torch.cat([past, new], 3)
        if merged:
            past = torch.cat([past, new], 3)
        if keep:
            past = past.to(keep)
        keys, values = past.to(x.dtype)
        if late:
            keys = rotate(keys, torch.arange(keys.shape[2])).to(x.dtype)
        return layer.o_proj(
            attend(q, keys, values, order, torch.arange(keys.shape[2]))[0].transpose(1, 2).flatten(-2)
        ), past

    return attended


def in_place(layer, x, past):
    out, after = ANSWERS["attention"](layer, x, past)
    if past is not None:
        past.zero_()
    return out, after


def unrotated(*given):
    return rebound(ANSWERS["attention"], rotate=lambda t, positions: t)(*given)


def rotated_again(layer, x, past):
    if past is not None:
        past = torch.stack([rotate(past[0], torch.arange(past.shape[3])), past[1]])
    return ANSWERS["attention"](layer, x, past)


def writing(again=False, twice=False, last=False, greys=GREYS, forget=False):
    def write(step, tokens, new):
        fed, pasts = tokens, None
        if twice:
            pasts = step(tokens, None)[1]
            fed = tokens[:, -1:]
        for _ in range(new):
            logits, pasts = step(fed, None if forget else pasts)
            grey = logits[:, -1:, :greys].argmax(-1)
            tokens = torch.cat([tokens, grey], 1)
            fed = tokens if again else grey
        if last:
            step(fed, pasts)
        return tokens

    return write


told("✓", "decode", attention=attention(late=True))  # keys are stored as they are, and rotated when read
told("✓", "decode", attention=attention(begin=lambda before: before + 7))  # only differences count
told("attention returns nothing yet", "decode", attention=solved.nothing)
told("write returns nothing yet", "decode", write=solved.nothing)
told("positions of new tokens begin at 0", "decode", attention=attention(begin=lambda before: 0))
told("begin one too late", "decode", attention=attention(begin=lambda before: before + (before > 0)))
told("begin one too early", "decode", attention=attention(begin=lambda before: before - (before > 0)))
told("in torch.float32, and the tokens", "decode", attention=attention(keep=torch.float32))
told("one for each query", "decode", attention=attention(heads=True))
told("each is remembered once", "decode", attention=attention(merged=True))
told("changes the past", "decode", attention=in_place)
told("nothing is rotated", "decode", attention=unrotated)
told("are rotated again", "decode", attention=rotated_again)
told("passes all tokens through step again", "decode", write=writing(again=True))
told("last known token passes through step twice", "decode", write=writing(twice=True))
told("the last new one need not", "decode", write=writing(last=True))
told("is no grey", "decode", write=writing(greys=None))
told("loses the past", "decode", write=writing(forget=True))


# Bytes of a token, requests in a budget


def by_pages(shape, nbytes, page, prompt, new, element):
    """Another right answer: hand out pages until there are too few."""
    left, count = nbytes // (needs_of(shape, element) * page), 0
    while (left := left - len(range(0, prompt + new - 1, page))) >= 0:
        count += 1
    return count


def fitting(last=0, whole=False, start=False):
    def fits(shape, nbytes, page, prompt, new, element):
        if whole:
            return nbytes // (needs_of(shape, element) * (prompt + new - 1))
        cached = prompt if start else prompt + new - 1 + last
        return nbytes // (page * needs_of(shape, element)) // -(-cached // page)

    return fits


told("✓", "bytes_and_requests", fitting=by_pages)
told("token_bytes returns nothing yet", "bytes_and_requests", token_bytes=solved.nothing)
told("fitting returns nothing yet", "bytes_and_requests", fitting=solved.nothing)
told(
    "the heads of queries",
    "bytes_and_requests",
    token_bytes=lambda s, e: 2 * s.layers * s.heads * s.head_width * e,
)
told("Keys and values are two", "bytes_and_requests", token_bytes=lambda s, e: needs_of(s, e) // 2)
told("Every layer", "bytes_and_requests", token_bytes=lambda s, e: needs_of(s, e) // s.layers)
told("Ask `element`", "bytes_and_requests", token_bytes=lambda s, e: needs_of(s, 2))
told("The last token is never fed", "bytes_and_requests", fitting=fitting(last=1))
told("round its pages up", "bytes_and_requests", fitting=fitting(whole=True))
told("some will be preempted", "bytes_and_requests", fitting=fitting(start=True))
told("Only whole", "bytes_and_requests", fitting=lambda *given: ANSWERS["fitting"](*given) + 0.5)


@pytest.mark.parametrize("prompt, new", [(1, 16), (8, 9), (16, 2), (17, 16)])
def test_so_many_requests_run_to_their_end_without_a_preemption_and_one_more_does_not(prompt, new):
    shape, page, size = common.new_shape(), 4, 26
    nbytes = size * memory.kv_cache_bytes(shape, page) + 1
    fits = pages.requests_that_fit(shape, nbytes, page, prompt, new)
    for count in (fits, fits + 1):
        scheduler = Scheduler(Pool(size, page), slots=99)
        requests = [Request([0] * prompt, new) for _ in range(count)]
        for request in requests:
            scheduler.add(request)
        together = 0
        while scheduler.waiting or scheduler.running:
            for request, tokens in scheduler.schedule():
                scheduler.advance(request, tokens)
                request.tokens.append(0)
            together = max(together, len(scheduler.running))
            for request in [r for r in scheduler.running if len(r.tokens) == prompt + new]:
                scheduler.leave(request)
        undisturbed = together == count and not any(request.preemptions for request in requests)
        assert undisturbed == (count == fits)


# A scheduler under a budget of pages


def scheduled(**others):
    """The solved lab's four functions with `others`, and calling them."""
    names = {name: rebound(ANSWERS[name], **others) for name in TASKS["scheduler"]}
    names = {name: rebound(function, **(names | others)) for name, function in names.items()}
    return names | others


def preempt(keeps=False, lists=False, computed=0, tail=False, forgets=False, lost=False):
    def preempted(server, request):
        server.running.remove(request)
        if not keeps:
            server.free += request.pages
            if not lists:
                request.pages = []
        if lost:
            request.tokens = list(request.prompt)
        if computed is not None:
            request.computed = computed
        if not forgets:
            server.waiting.insert(len(server.waiting) if tail else 0, request)

    return preempted


def grow(victim=-1, always=False, answer=None, blind=False):
    def grown(server, request):
        while request in server.running and server.needs(request):
            if server.free and not always:
                request.pages.append(server.free.pop())
            elif blind:
                return True
            else:
                ANSWERS["preempt"](server, server.running[victim])
                always_no_more = server.free
                if always_no_more and request in server.running:
                    request.pages.append(server.free.pop())
        return answer if answer is not None else request in server.running

    return grown


def admit(pages=True, slots=True, fewer=0, last=False, less=0):
    def admitted(server):
        request = server.waiting[-1 if last else 0]
        needed = server.needs(request)
        if slots and len(server.running) >= server.slots - less:
            return False
        if needed + fewer > len(server.free) and pages:
            return False
        request.pages = [server.free.pop() for _ in range(min(needed, len(server.free)))]
        server.waiting.remove(request)
        server.running.append(request)
        return True

    return admitted


def finish(frees=True, empties=True, removes=True):
    def finished(server, request):
        if removes:
            server.running.remove(request)
        if frees:
            server.free += request.pages
        if empties:
            request.pages = []

    return finished


def grow_from_the_other_end(server, request):
    """Another right answer: oldest free pages first, and it is decided first who has to go."""
    while server.needs(request) > len(server.free):
        last = server.running[-1]
        ANSWERS["preempt"](server, last)
        if last is request:
            return False
    request.pages.extend(server.free[: server.needs(request)])
    server.free = [page for page in server.free if page not in request.pages]
    return True


told("✓", "scheduler", grow=grow_from_the_other_end)
told("admit returns nothing yet", "scheduler", admit=solved.nothing)
told("grow returns nothing yet", "scheduler", grow=solved.nothing)
for said, wrong in {
    "waits and keeps": preempt(keeps=True),
    "its pages are free, and it still lists": preempt(lists=True),
    "taken for a decode": preempt(computed=None),
    "somebody overtakes": preempt(tail=True),
    "is in 0 of the lists": preempt(forgets=True),
    "has lost tokens": preempt(lost=True),
}.items():
    told(said, "scheduler", **scheduled(preempt=wrong))
told("the oldest that runs", "scheduler", grow=grow(victim=0))
told("although", "scheduler", grow=grow(always=True))
told("grow says that", "scheduler", grow=grow(blind=True))
told("grow returned True, and", "scheduler", grow=grow(answer=True))
told("beyond the budget", "scheduler", admit=admit(pages=False))
told("beyond the budget", "scheduler", admit=admit(slots=False))
told("may be used up whole", "scheduler", admit=admit(fewer=1))
told("may be used up whole", "scheduler", admit=admit(less=1))
told("nobody is admitted before the first", "scheduler", admit=admit(last=True))
told("pages are lost", "scheduler", **scheduled(finish=finish(frees=False)))
told("still lists", "scheduler", **scheduled(finish=finish(empties=False)))
told("still runs after finish", "scheduler", finish=finish(removes=False))


# A prefix cache


def nested(tokens, page):
    """Another right answer: the whole beginning is its own key."""
    return [tuple(tokens[:end]) for end in range(page, len(tokens) + 1, page)]


def unchained(tokens, page):
    return [tuple(tokens[end - page : end]) for end in range(page, len(tokens) + 1, page)]


def chained_once(tokens, page):
    return [tuple(tokens[max(0, end - 2 * page) : end]) for end in range(page, len(tokens) + 1, page)]


def unfinished(tokens, page):
    return [tuple(tokens[: end + page]) for end in range(0, len(tokens), page)]


def share(whole=False, counts=True, writes=False, computed=True, most=99):
    def shared(pool, request):
        tokens = request.tokens if whole or writes else request.tokens[:-1]
        for key in page_keys_of_lab(tokens, pool.page)[:most]:
            if key not in pool.found:
                break
            pool.holders[pool.found[key]] += counts
            request.pages.append(pool.found[key])
        if computed:
            request.computed = len(request.pages) * pool.page
        if writes:
            request.computed = min(request.computed, len(request.tokens) - 1)

    return shared


page_keys_of_lab = ANSWERS["keys"]


def share_in_one_go(pool, request):
    """Another right answer: count first, take then."""
    known = ANSWERS["keys"](request.tokens, pool.page)[: (len(request.tokens) - 1) // pool.page]
    count = next((n for n, key in enumerate(known) if key not in pool.found), len(known))
    request.pages = [pool.found[key] for key in known[:count]]
    for page in request.pages:
        pool.holders[page] += 1
    request.computed = pool.page * count


def release(frees="right", counts=True):
    def released(pool, pages):
        for page in pages:
            pool.holders[page] -= counts
            known = page in pool.found.values()
            if (frees == "all" and not pool.holders[page]) or (frees == "shared" and not known):
                pool.free.append(page)
            elif frees == "forget" and not pool.holders[page]:
                pool.found = {key: other for key, other in pool.found.items() if other != page}
                pool.free.append(page)
            elif frees == "zero":
                pool.holders[page] = 0
                if not known:
                    pool.free.append(page)

    return released


told("✓", "prefixes", share=share_in_one_go)
told("✓", "prefixes", keys=page_keys, share=rebound(ANSWERS["share"], keys=page_keys))
told("✓", "prefixes", keys=nested, share=rebound(ANSWERS["share"], keys=nested))
told("keys returns nothing yet", "prefixes", keys=solved.nothing)
told("needs the key before it", "prefixes", keys=unchained, share=rebound(ANSWERS["share"], keys=unchained))
told("chain the keys", "prefixes", keys=chained_once)
told("not full has none", "prefixes", keys=unfinished)
told("the last has to be computed", "prefixes", share=share(whole=True))
told("which is shared", "prefixes", share=share(writes=True))
told("share counts up", "prefixes", share=share(counts=False))
told("`computed` is still 0", "prefixes", share=share(computed=False))
told("finds 1 pages; 2", "prefixes", share=share(most=1))
told("finds 0 pages", "prefixes", share=solved.nothing)
told("release counts down", "prefixes", release=release(counts=False))
told("a key still finds it", "prefixes", release=release(frees="all"))
told("forgets a key", "prefixes", release=release(frees="forget"))
told("is lost", "prefixes", release=release(frees="never"))
told("release counts down", "prefixes", release=release(frees="zero"))


# Settings for a load


@functools.cache
def run_of(load, engine, policy, budget, pages):
    return inference.serve(load, engine, policy, budget, pages=pages, page=loads.PAGE)


def planned(score=None, room=True, policies=("continuous", "chunked"), fixed=None, longest=True):
    """The solved lab's plan, with another score, other candidates or other pages."""

    def plan(load, engine, shape, first, later, space, workspace):
        tried = []
        for policy in policies:
            for budget in [fixed] if fixed else loads.BUDGETS:
                left = space - workspace * budget * room
                settings = policy, budget, int(left) // memory.kv_cache_bytes(shape, loads.PAGE)
                if longest and policy == "continuous" and budget < max(request.prompt for request in load):
                    continue
                run = run_of(tuple(load), engine, *settings)
                tried.append(((score or inference.goodput)(run, first, later), settings))
        return max(tried)[1]

    return plan


def first_tokens(run, first, later):
    return -inference.mean(inference.ttft(each) for each in run.served)


def later_tokens(run, first, later):
    return -inference.mean(inference.tpot(each) for each in run.served)


told("✓", "plan")  # the solved lab's own, on the arrivals of this seed
told("✓", "plan", plan=planned(score=inference.attainment))
told("plan returns nothing yet", "plan", plan=solved.nothing)
told("expected (policy, budget, pages)", "plan", plan=lambda *_: 512)
told("share the room", "plan", plan=planned(room=False))
told("are asked", "plan", plan=planned(score=first_tokens))
told("are asked", "plan", plan=planned(score=later_tokens))
told("A larger budget", "plan", plan=planned(fixed=256))
told("A smaller budget", "plan", plan=planned(fixed=2048))
told("all of them need workspace", "plan", plan=planned(policies=["continuous"], longest=False, fixed=512))
told("are asked", "plan", plan=planned(policies=["continuous"]))


def judge(line, said):
    assert said in line, line
    assert line[0] == ("✓" if said == "✓" else "✗")


@pytest.mark.parametrize("task, said, changed", ALONE)
def test_an_answer_is_told_what_it_is(task, said, changed):
    judge(line_of(task, **changed), said)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("task", [task for task in TASKS if task not in ("sliced", "plan")])
def test_the_solved_answers_are_right_whatever_is_drawn(task, seed):
    random.seed(seed)
    judge(line_of(task), "✓")


# Two ranks


def layered(*sums):
    """A layer that sums at these places: attention, mlp, and the residual stream behind each."""

    def one_layer(layer, x, past):
        y, past = ANSWERS["attention"](layer.self_attn, layer.input_layernorm(x), past)
        x = summed(x, y, "attention", sums)
        return summed(x, layer_mlp(layer)(x), "mlp", sums), past

    return one_layer


def summed(x, y, place, sums):
    if place in sums:
        dist.all_reduce(y)
    x = x + y
    if f"{place} and x" in sums:
        dist.all_reduce(x)
    return x


def layer_mlp(layer):
    return lambda x: layer.mlp(layer.post_attention_layernorm(x))


def gathering(layer, x, past):
    """Another right answer: everyone's parts are gathered, and added up by each rank."""

    def total(y):
        parts = y.new_empty(2, *y.shape)
        dist.all_gather_single(parts, y.contiguous()[None])
        return parts.sum(0)

    y, past = ANSWERS["attention"](layer.self_attn, layer.input_layernorm(x), past)
    x = x + total(y)
    return x + total(layer_mlp(layer)(x)), past


def cutting(order, *left_whole):
    """Cut by rows that `order` picks of all rows; matrices in `left_whole` stay whole."""

    def cut(layer):
        for dim, names in (
            (0, ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")),
            (1, ("o_proj", "down_proj")),
        ):
            for name in names:
                linear = getattr(layer.self_attn if name[0] in "qkvo" else layer.mlp, name)
                if name not in left_whole:
                    size = linear.weight.shape[dim]
                    rows = order(name, size, dist.get_rank())
                    linear.weight = torch.nn.Parameter(linear.weight.index_select(dim, rows), False)

    return cut


def halves(name, size, rank):
    return torch.arange(size).chunk(2)[rank]


def other_halves(name, size, rank):
    return torch.arange(size).chunk(2)[1 - rank]


def every_other(name, size, rank):
    return torch.arange(rank, size, 2)


def crossed(name, size, rank):
    return halves(name, size, 1 - rank if name in ("k_proj", "v_proj") else rank)


def three_sums(layer, x, past):
    dist.all_reduce(x.clone())
    return ANSWERS["one_layer"](layer, x, past)


def everything_remembered(layer, x, past):
    x, past = ANSWERS["one_layer"](layer, x, None if past is None else past[:, :, : past.shape[2] // 2])
    return x, torch.cat([past, past], 2)


SLICED = {
    "in halves": ("✓", {"cut": cutting(halves)}),
    "in other halves": ("✓", {"cut": cutting(other_halves)}),
    "by gathering": ("✓", {"one_layer": gathering}),
    "nothing": ("one_layer returns nothing yet", {"one_layer": solved.nothing}),
    "not cut": ("half of each is enough", {"cut": solved.nothing}),
    "keys whole": ("half of each is enough", {"cut": cutting(halves, "k_proj", "v_proj")}),
    "no sum": ("nobody sums", {"one_layer": layered()}),
    "one sum": ("the feed-forward's halves", {"one_layer": layered("attention")}),
    "late sum": ("attention's halves are not summed", {"one_layer": layered("mlp")}),
    "sum with x": ("contains x itself", {"one_layer": layered("attention and x", "mlp and x")}),
    "wrong keys": ("the keys that their group shares", {"cut": cutting(crossed)}),
    "every other row": ("the keys that their group shares", {"cut": cutting(every_other)}),
    "three sums": ("two all-reduces", {"one_layer": three_sums}),
    "all remembered": ("remembers", {"one_layer": everything_remembered}),
}


class Asked(BaseException):
    """What a check wants to run: a function and its arguments."""


def together(calls):
    """On a rank: what each call returns."""
    return [test(*args) for test, args in calls]


def asked(name, ranks=None):
    """The line about an answer for two ranks, once `ranks` have run it; before, raise Asked."""
    answers = [(ANSWERS | SLICED[name][1])[part] for part in TASKS["sliced"]]

    def replay(test, *args, world_size, **_):
        if ranks is None:
            raise Asked(test, args)
        return ranks

    random.seed(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "run_on_ranks", replay)
        return check.verdict(check.lab_06.sliced.__wrapped__, *answers)


@pytest.fixture(scope="module")
def lines(ranks_need_not_import_the_test):
    calls = []
    for name in SLICED:
        with pytest.raises(Asked) as call:
            asked(name)
        calls.append(call.value.args)
    ranks = launch(together, calls, world_size=2, timeout=120, backend="gloo")
    return {name: asked(name, found) for name, *found in zip(SLICED, *ranks, strict=True)}


@pytest.mark.parametrize("name", SLICED)
def test_an_answer_on_two_ranks_is_told_what_it_is(lines, name):
    judge(lines[name], SLICED[name][0])


# Ranks of their own


@pytest.mark.parametrize("task", TASKS)
def test_a_crash_and_what_is_no_function_are_told_so(capfd, task):
    one_check = getattr(check.lab_06, task)
    crashed = verdict(capfd, one_check, *[solved.crash] * len(TASKS[task]))
    assert crashed.startswith("✗") and "KeyError" in crashed
    for answer in (None, ..., 3):
        assert "is a function" in verdict(capfd, one_check, *[answer] * len(TASKS[task]))


def test_a_scheduler_that_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 2.0)
    answers = [solved.hang, *(ANSWERS[name] for name in TASKS["scheduler"][1:])]
    assert "did not finish" in verdict(capfd, check.lab_06.scheduler, *answers)


def test_the_load_of_the_scheduler_needs_preemptions():
    for seed in range(20):
        random.seed(seed)
        load = scheduling.new_load()
        assert sum(-(-(len(prompt) + new - 1) // scheduling.PAGE) for prompt, new, *_ in load[:3]) > 7


def test_a_milestone_with_a_task_left_is_not_reached(capfd):
    names = [name for task, parts in TASKS.items() for name in parts if task != "sliced"]
    names[-1:-1] = ["cut", "one_layer"]
    answers = [None if name in ("cut", "plan") else ANSWERS[name] for name in names]
    with in_this_process():
        check.lab_06.milestone(*answers)
    lines = capfd.readouterr().out.splitlines()
    assert lines[-3:] == [
        "✗ tensor-parallel decode on two ranks",
        "✗ settings for a load",
        "4 of 6 tasks are solved.",
    ]
