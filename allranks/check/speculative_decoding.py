"""The exercises of the chapter on speculative decoding."""

import torch
import torch.distributed as dist

from allranks import inference, launch
from allranks.check import exercise

SECONDS = 20.0
RANKS, SEVERAL = 3, 5  # guesses that a rank lists, and more
PAIRS, ENTRIES = 6, 9  # distributions, and tokens of each
ACCEPTANCE, COST = 0.8, 0.05


def _draft(tokens, guesses):
    """What rank r would guess, fewer than asked for: r + 1 times 10 · r, and then the last token."""
    rank = dist.get_rank()
    return [*(rank + 1) * [10 * rank], tokens[-1]][:guesses]


@exercise
def agreed(answer):
    """`answer(draft)`: a draft that lists, on every rank, what rank 0's `draft` does."""

    def on_rank():
        draft = answer(_draft)
        found = [draft([7, 8, 9], guesses) for guesses in (SEVERAL, 1, 0)]
        dist.barrier()
        return found, [_draft([7, 8, 9], guesses) for guesses in (SEVERAL, 1, 0)]

    results = launch(on_rank, world_size=RANKS, backend="gloo", timeout=SECONDS)
    _, right = results[0]
    for rank, (found, own) in enumerate(results):
        for mine, expected, alone in zip(found, right, own, strict=True):
            assert isinstance(mine, list), f"Rank {rank} got {mine!r}; a draft returns a list of tokens."
            assert mine == expected or mine != alone, (
                f"Rank {rank} still uses its own guesses, {mine}, instead of rank 0's, {expected}."
            )
            assert all(type(token) is int for token in mine), (
                f"Rank {rank} got {mine!r}; tokens are plain integers: use `tolist`."
            )
            assert mine == expected, f"Rank {rank} got {mine}, but rank 0 guessed {expected}."
    return f"All {RANKS} ranks use rank 0's guesses, however many there are."


@exercise
def after_refusal(answer):
    """`answer(p, q)`: the distribution of the next token when a guess drawn from q was refused."""
    draw = torch.Generator().manual_seed(0)
    for _ in range(PAIRS):
        p, q = torch.randn(2, ENTRIES, generator=draw).softmax(-1)
        found = answer(p.clone(), q.clone())
        assert torch.is_tensor(found) and found.shape == p.shape, (
            f"Expected a tensor of {ENTRIES} probabilities; got {found!r}."
        )
        assert (found >= 0).all(), "A probability is negative: what q has more than p counts as 0."
        total = float(found.sum())
        assert abs(total - 1) < 1e-4, f"The probabilities add up to {total:.3f}; divide by their sum."
        refused = (q - p).clamp(min=0).sum()
        whole = torch.minimum(p, q) + refused * found
        assert not torch.allclose(found, p, atol=1e-5), (
            "If a refused guess were replaced by a token drawn from p, tokens that q underrates would come "
            "too seldom."
        )
        worst = int((whole - p).abs().argmax())
        assert torch.allclose(whole, p, atol=1e-5), (
            f"Then token {worst} has probability {whole[worst]:.3f} overall, but p gives it {p[worst]:.3f}."
        )
    return "Accepted or refused, the next token has the model's distribution."


@exercise
def how_many(answer):
    """`answer`: the number of guesses with the largest expected speed-up."""

    def speed(guesses):
        return inference.speculation_speed_up(ACCEPTANCE, guesses, COST)

    right = max(range(100), key=speed)
    assert answer is not None, "Replace None with a number."
    assert type(answer) is int and answer >= 0, (
        f"The number of guesses is a whole number from 0 on, not {answer!r}."
    )
    better = answer + (1 if right > answer else -1)
    assert answer == right, (
        f"With γ = {answer} the speed-up is {speed(answer):.3f}, but with γ = {better} it is "
        f"{speed(better):.3f}."
    )
    return f"{answer} guesses: {speed(answer):.2f} times as fast. One more would cost more than it adds."
