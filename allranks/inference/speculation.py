"""How many tokens does a guess save? Speculative decoding, in expectation.

The model: a small model guesses γ tokens, the large one checks them all in a single step and accepts each
with probability α, independently, up to the first that it refuses; that step also yields one token of its own
(Leviathan et al. 2023, section 3). A step of the small model takes `cost` times as long as one of the large.
"""

from ..inputs import quantity, whole


def expected_tokens(acceptance, guesses):
    """Expected tokens of one step of the large model: (1 − α^(γ+1)) / (1 − α), equation 1."""
    if quantity("acceptance", acceptance) > 1:
        raise ValueError(f"acceptance must be a probability from 0 to 1, not {acceptance}")
    tokens, likely = 0.0, 1.0
    for _ in range(whole("guesses", guesses, 0) + 1):
        tokens, likely = tokens + likely, likely * acceptance
    return tokens


def speculation_speed_up(acceptance, guesses, cost=0.0):
    """Expected speed-up in time: (1 − α^(γ+1)) / ((1 − α)(γ·cost + 1)), theorem 3.8."""
    return expected_tokens(acceptance, guesses) / (guesses * quantity("cost", cost) + 1)


def speculation_flops(acceptance, guesses, cost=0.0):
    """Expected FLOPs a token over those without guesses: (1 − α)(γ·cost + γ + 1) / (1 − α^(γ+1)).

    Theorem 3.11 of Leviathan et al. 2023.

    cost: FLOPs of the small model for a token, over those of the large one.
    """
    return (guesses * quantity("cost", cost) + guesses + 1) / expected_tokens(acceptance, guesses)
