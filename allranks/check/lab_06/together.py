"""All tasks together: digits served on two ranks, and settings for a load."""

import copy
import random

import torch

from allranks import memory
from allranks.check import labs
from allranks.check.lab_06.common import forward, must, on_ranks
from allranks.check.lab_06.decoding import decode
from allranks.check.lab_06.guessing import MOST, guesses
from allranks.check.lab_06.judged import Judged
from allranks.check.lab_06.loads import SERVICES, SHARE, plan
from allranks.check.lab_06.measuring import latency_measured
from allranks.check.lab_06.pages import bytes_and_requests
from allranks.check.lab_06.scheduling import alone, scheduler, served
from allranks.check.lab_06.sharing import Sharing, prefixes
from allranks.check.lab_06.slices import RANKS, sliced, sliced_forward
from allranks.inference import tensor_slice
from allranks.model import DIGITS, GREYS, PIXELS
from allranks.serving import Cache, Request, generate, load
from allranks.serving.speculation import lookup

PAGE, COUNT = 8, 4


def new_orders(model):
    """Begun pictures to complete, two of each, that arrive at random: (prompt, new, seed, arrival)."""
    digits = torch.tensor(random.sample(range(DIGITS), COUNT // 2))[:, None] + GREYS
    cache = Cache(model.shape, COUNT // 2, PIXELS, dtype=torch.float64)
    drawn, _ = generate(model, digits, PIXELS, cache, random.randrange(2**31))
    orders, arrival = [], 0
    for number in range(COUNT):
        known = 1 + random.choice([40, 43, 46])
        orders.append((drawn[number % (COUNT // 2), :known].tolist(), PIXELS + 1 - known, None, arrival))
        arrival += random.choice([0, 1, 2])
    return orders


def _digits():
    """The digits model in 64 bits, where no sum is rounded across the border of two greys."""
    return load().double().requires_grad_(False)


def _served_in_slices(cut, one_layer, answers, orders, pages, slots):
    """On each rank: the tokens of all requests, scheduled by the reader, and the most numbers remembered."""
    model = _digits()
    for layer in model.model.layers:
        cut(layer)
    judged = Judged(pages, PAGE, slots, answers, 10 * sum(new for _, new, *_ in orders))
    requests, pasts, most, step = [Request(*order) for order in orders], {}, 0, 0
    coming = list(requests)
    while coming or judged.waiting or judged.running:
        while coming and coming[0].arrival <= step:
            judged.add(coming.pop(0))
        for request, count in judged.schedule():
            past = pasts.get(request) if request.computed else None
            fed = torch.tensor([request.tokens[request.computed :][:count]])
            logits, pasts[request] = sliced_forward(model, one_layer, fed, past)
            judged.advance(request, count)
            request.tokens.append(int(logits[0, -1, :GREYS].argmax()))
            if len(request.tokens) == len(request.prompt) + request.new:
                judged.leave(request)
        held = [past.nbytes for request in judged.running for past in pasts[request]]
        most, step = max(most, sum(held)), step + 1
    must(judged.preempted, "No request was preempted, although there are too few pages for all.")
    return [request.tokens for request in requests], most


def _shared(answers, orders, pages, slots):
    scheduler = Sharing(pages, PAGE, slots, answers)
    return served(_digits(), orders, scheduler), sum(scheduler.reused)


def _guessed(attention, speculate, orders):
    """The tokens of each order, with guesses that are looked up, and the passes of all of them."""
    model, passes = _digits(), 0

    def step(tokens, pasts=None):
        nonlocal passes
        passes += 1
        return forward(model, attention, tokens, pasts)

    def draft(tokens):
        return torch.tensor([lookup(tokens[0].tolist(), MOST)], dtype=tokens.dtype)

    with torch.no_grad():
        tokens = [
            speculate(step, draft, torch.tensor([prompt]), new)[0].tolist() for prompt, new, *_ in orders
        ]
    return tokens, passes


def milestone(
    attention, write, token_bytes, fitting, admit, grow, preempt, finish, keys, share, release, cut,
    one_layer, speculate, choose, table, drawing, reflection,
):  # fmt: skip
    """Try every task, and then all of them: digits on two ranks, and three services within objectives."""

    def whole():
        model = _digits()
        orders = new_orders(model)
        right, slots = alone(model, orders), 4
        part = tensor_slice(copy.copy(model.shape), RANKS)
        pages = 5 * PIXELS // (2 * PAGE)
        room = pages * PAGE * token_bytes(part, 8)
        assert room == memory.kv_cache_bytes(part, pages * PAGE, element=8), (
            "token_bytes of a slice is wrong."
        )
        assert fitting(part, room, PAGE, 1, PIXELS, 8) == 2, "Two whole pictures fit."
        answers = admit, grow, preempt, finish
        ranks = on_ranks(_served_in_slices, cut, one_layer, answers, orders, pages, slots, world_size=RANKS)
        for rank, (tokens, most) in enumerate(ranks):
            assert tokens == right, f"Rank {rank}'s pictures differ from one process's."
            assert most <= room, f"Rank {rank} caches {most:,} bytes, but its pages have {room:,}."
        tokens, reused = on_ranks(_shared, (keys, share, release), orders, 8 * PIXELS // PAGE, 2)[0]
        assert tokens == right, "With a prefix cache the pictures change."
        assert reused, "Nothing was found in the prefix cache."
        tokens, passes = on_ranks(_guessed, attention, speculate, orders)[0]
        assert tokens == right, "With guesses the pictures change."
        new = sum(new for _, new, *_ in orders)
        assert passes < new, f"{new} tokens take {passes} passes: no guess is kept."
        return (
            f"{COUNT} pictures on {RANKS} ranks are preempted and completed as in one process, within "
            f"{room:,} bytes of cache a rank; {len(SERVICES)} services have "
            f"{100 * SHARE:.0f} % of the best goodput or more."
        )

    labs.milestone(
        [
            ("decode with a cache", decode, attention, write),
            ("bytes of a token, requests in a budget", bytes_and_requests, token_bytes, fitting),
            ("a scheduler under a budget of pages", scheduler, admit, grow, preempt, finish),
            ("a prefix cache", prefixes, keys, share, release),
            ("tensor-parallel decode on two ranks", sliced, cut, one_layer, attention),
            ("guess several tokens", guesses, speculate),
            ("settings for a load", plan, choose),
            ("latency against load, measured", latency_measured, table, drawing, reflection),
        ],
        whole,
        "digits served on two ranks, under a budget and within two objectives.",
    )
