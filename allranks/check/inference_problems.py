"""The ten mixed problems at the end of the part on inference."""

import numpy as np

from allranks import hardware, inference, memory, precision, transformer
from allranks.check import exercise
from allranks.check.answers import all_of, chosen, near
from allranks.check.stubs import is_number

LARGE, SMALL = transformer.PRESETS["llama3-70b"], transformer.PRESETS["llama3-8b"]
LINKS = {"a100-80gb": "nvlink-3", "h100": "nvlink-4"}
RANKS = (1, 2, 4, 8)
USERS, CONTEXT, RATE, USED = 100, 4096, 30, 0.9  # tokens each, tokens a second, share of memory
DRAWING, LEARNING = {4: 458, 16: 247}, {12: 445, 16: 374}  # verl's seconds by the number of GPUs


def room(name, ranks):
    """How many sequences fit on `ranks` of these GPUs, with a tenth of the memory left free."""
    part = inference.tensor_slice(LARGE, ranks)
    return inference.largest_batch(part, CONTEXT, USED * hardware.accelerator(name).memory)


def seconds(name, ranks):
    """(on the device, in collectives): seconds of a step for all users."""
    return inference.decode_seconds(LARGE, ranks, name, LINKS[name], CONTEXT - 1, USERS)


@exercise
def plan(answer):
    """(GPU, ranks, GB of cache on each, ms of a step): the fewest for 100 users at 30 tokens a second."""
    name, ranks, gigabytes, milliseconds = all_of(answer, 4, "GPU, ranks, GB, ms")
    assert name in LINKS and ranks in RANKS, 'Choose "a100-80gb" or "h100", and 1, 2, 4 or 8 ranks.'
    cache = memory.kv_cache_bytes(LARGE, CONTEXT, USERS)
    fit = room(name, ranks)
    if fit < USERS:
        weights = 2 * transformer.parameters(LARGE)
        alone = weights <= USED * ranks * hardware.accelerator(name).memory
        raise AssertionError(
            f"Beside the weights there is room for {fit} sequences, but the users need {cache / 1e9:.0f} "
            f"GB of cache{': it is not enough that the weights fit' if alone else ''}."
        )
    step = sum(seconds(name, ranks))
    assert step * RATE <= 1, (
        f"Everything fits, but a step takes {1e3 * step:.1f} ms: {1 / step:.0f} tokens a second. What "
        "limits the step?"
    )
    fewest = min(r for n in LINKS for r in RANKS if room(n, r) >= USERS and sum(seconds(n, r)) * RATE <= 1)
    assert ranks == fewest, f"That works, but {fewest} GPUs are enough."
    near(
        gigabytes,
        cache / ranks / 1e9,
        {
            cache / 1e9: f"That is the cache of all {ranks} GPUs; each has its own KV heads.",
            8 * cache / ranks / 1e9: "Llama 3 70B has 8 KV heads for its 64 query heads.",
            cache / ranks / 2**30: "That is in GiB; memory is sold in GB of 10⁹ bytes.",
        },
    )
    near(
        milliseconds,
        1e3 * step,
        {
            1e3 * seconds(name, ranks)[0]: (
                "That is what each GPU reads; 161 sums and a gather also take time."
            ),
            1e3 / RATE: "That is the limit. How long does the step really take?",
        },
    )
    return f"{ranks} H100s, {cache / ranks / 1e9:.1f} GB of cache on each and {1e3 * step:.1f} ms a step."


@exercise
def first_token(answer):
    """Why the time to the first token explodes, where later tokens come as before."""
    assert [round(inference.prefill(rate, 0.2), 1) for rate in (4, 4.75)] == [0.6, 2.1]
    chosen(
        answer,
        "C",
        {
            "A": "Longer decode steps would delay later tokens, and those come as before.",
            "B": "Without pages, requests that decode would be preempted, and later tokens would wait.",
            "D": (
                "The prefill server writes the first token before the cache moves, so a slow link delays "
                "only the next."
            ),
            "E": "No server does both, and a pause in decoding would delay later tokens, not the first.",
        },
    )
    return "A server that was busy 80 % of the time is now busy 95 %, and the queue grows with 1/(1 − RD)."


@exercise
def copies(answer):
    """GB that a prompt of 8,192 tokens of Llama 3 70B sends to 16 tensor-parallel ranks."""
    whole = memory.kv_cache_bytes(LARGE, 8192)
    right = inference.moved_bytes(LARGE, 8192, receivers=16)
    near(
        answer,
        right / 1e9,
        {
            whole / 1e9: "Sixteen ranks share eight KV heads: each head goes to two of them.",
            16 * whole / 1e9: "A receiver needs one KV head, not all of them.",
            8 * whole / 1e9: "Those are the 64 query heads; there are 8 KV heads.",
            right / 16 / 1e9: "That is what one of the sixteen receives.",
        },
    )
    return f"{right / 1e9:.2f} GB, twice the cache: each of the eight heads goes to two ranks."


@exercise
def at_half_peak(answer):
    """Mooncake's bandwidth for 8×H800 with all matrices of the model, and GPUs at half their peak."""
    peak = 8 * hardware.peak("h100")
    right = inference.break_even_bandwidth(LARGE, 8192, peak / 2) / 1e9
    printed = peak * inference.mooncake_break_even(8192, 8192, 8, 4, 22) / 1e9
    near(
        answer,
        right,
        {
            printed: "That is the printed number: b = 22, and GPUs at their peak.",
            round(printed): "That is the printed number: b = 22, and GPUs at their peak.",
            printed / 2: "Half of the printed number still has b = 22; the model's matrices make 25.5.",
            round(printed)
            / 2: "Half of the printed number still has b = 22; the model's matrices make 25.5.",
            2 * right: "The matrices are right, but the GPUs compute at half their peak.",
            4 * right: (
                "That goes the wrong way: slower GPUs take longer to compute, so a slower link is enough."
            ),
            right / 8: "That is for one GPU; eight compute together.",
        },
    )
    return f"{right:.1f} GB/s: with slower GPUs and larger matrices, moving pays off on slower links."


@exercise
def largest_batch(answer):
    """Sequences of 8,192 tokens of Llama 3 70B on eight A100s with 80 GB, a tenth of it left free."""
    part, capacity = inference.tensor_slice(LARGE, 8), hardware.accelerator("a100-80gb").memory
    right = inference.largest_batch(part, 8192, USED * capacity)
    one = memory.kv_cache_bytes(part, 8192)
    near(
        answer,
        right,
        {
            right // 8: "Grouped queries share 8 KV heads, and each of eight ranks holds one of them.",
            inference.largest_batch(part, 8192, capacity): (
                "That fills all of the memory; a tenth stays free."
            ),
            USED * capacity // one: "The weights need room, too: an eighth of them on each rank.",
            2 * right: "That is a factor of two off: an element of the cache takes two bytes.",
        },
    )
    return f"{right} sequences; with 64 KV heads in the cache it would be {right // 8}."


def flooded(slots):
    """The `Run` of 120 requests on a pool of 512 pages, at most `slots` of them at once."""
    gpu = inference.engine(SMALL, "h100", efficiency=0.6)
    requests = inference.requests(inference.evenly(100, 120), prompts=100, outputs=900)
    return inference.serve(requests, gpu, "continuous", budget=2048, slots=slots, pages=512)


@exercise
def more_at_once(answer):
    """Why more running requests write hardly more tokens a second, and each of them more slowly."""
    assert sum(map(inference.preemptions, flooded(64).served)) > 0 == inference.recomputed_tokens(flooded(8))
    full = inference.step(SMALL, 1, 512 * 16 // 64 - 1, 64)
    device = hardware.accelerator("h100")
    cache = 1e3 * memory.kv_cache_bytes(SMALL, 512 * 16) / device.bandwidth / 0.6
    chosen(
        answer,
        "D",
        {
            "A": f"64 sequences that fill the pool make {full.intensity:.0f} FLOPs a byte, far below the "
            f"ridge of {hardware.ridge('h100'):.0f}.",
            "B": "The queue delays first tokens; it does not count in the mean time of later ones.",
            "C": f"Reading all 512 pages takes {cache:.1f} ms, however many requests share them.",
            "E": "The new prompts are the same 12,000 tokens in every run. Which tokens are the others?",
        },
    )
    return "Requests lose their pages, wait, and are recomputed: admit only as many as can finish."


@exercise
def pages(answer):
    """How many more requests run at once with pages of 16 tokens than with 2,048 tokens reserved."""
    token, free = memory.kv_cache_bytes(SMALL), 40e9
    paged, reserved = free // (16 * token) // 32, free // (2048 * token)
    fed = free // (16 * token) // 33 - reserved
    near(
        answer,
        paged - reserved,
        {
            paged: "That many run with pages. How many more is that than with reservations?",
            reserved: "That many run with reservations. How many more run with pages?",
            fed: "The last token is never fed back: a request ends with 512 tokens cached, in 32 pages.",
        },
    )
    return (
        f"{paged - reserved:.0f} more: {paged:.0f} instead of {reserved:.0f}, whose reservations are "
        "mostly empty."
    )


def step(generators, devices=32):
    """(generating, learning): seconds of the two sides of a step, which divide the devices."""
    sides = []
    for measured, count in ((DRAWING, generators), (LEARNING, devices - generators)):
        work, fixed = np.polyfit([1 / used for used in measured], list(measured.values()), 1)
        sides.append(fixed + work / count)
    return sides


@exercise
def split(answer):
    """(GPUs that generate, seconds of a step) of 32, from verl's times on 16."""
    generators, seconds = all_of(answer, 2, "GPUs that generate, seconds of a step")
    is_number(generators), is_number(seconds)
    best = min(range(1, 32), key=lambda count: max(step(count)))
    assert generators in range(1, 32), "Some of the 32 GPUs have to generate, and the others learn."
    assert generators == best, (
        "That keeps verl's ratio of 4 to 12. Does twice the number of GPUs halve both sides?"
        if generators == 8
        else "With {} generators, generation takes {:.0f} s and learning {:.0f} s: move a GPU to the slower "
        "side.".format(generators, *step(generators))
    )
    near(
        seconds,
        max(step(best)),
        {
            sum(step(best)): "The two sides work at the same time.",
            min(step(best)): "The samples would then be drawn, but the trainers still learn.",
            4 * DRAWING[4] / best: "That divides all of the 458 s, the fixed time too.",
        },
    )
    return (
        f"{best} generate, and a step takes {max(step(best)):.0f} s: twice the GPUs, and two thirds of "
        "the time."
    )


@exercise
def two_texts(answer):
    """Why a greedy answer depends on how many others are in the batch."""
    assert precision.spacing("bf16", 17.3) > 17.3 - 17.2
    chosen(
        answer,
        "E",
        {
            "A": "Greedy decoding takes the largest logit and draws no random number.",
            "B": "Another request's keys would change the text in float32 too, and not only near a tie.",
            "C": "Nothing was preempted, and what is recomputed is the same, up to rounding.",
            "D": "A token that attended to padding would do so in float32 too, and not only near a tie.",
        },
    )
    return "Sums in another order are rounded differently, and a near tie in 16 bits goes the other way."


@exercise
def latent(answer):
    """The cache of DeepSeek-V2 on each of eight ranks, over that of DeepSeek 67B, both in 16 bits."""
    grouped = transformer.llama(95, 8192, 64, 102400, 4096, 8, 22016)
    right = memory.latent_cache_bytes(60) / memory.kv_cache_bytes(grouped, tensor_parallel=8)
    near(
        answer,
        right,
        {
            1 - 0.933: "That is the printed number; it compares 6 bits with 16.",
            right / 8: "That is one rank. Eight divide the KV heads, but which of them has the latent?",
            right * 6 / 16: "Both caches have 16 bits an element here.",
            1 / right: "That is the inverse: turn the fraction around.",
        },
    )
    return f"{right:.2f} times as much: heads can be divided among ranks, but a latent cannot."
