"""The exercises of the chapter One device."""

from allranks import hardware
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.transformer import PRESETS

PARAMETERS, PEAK, UTILISATION = 8e9, 989e12, 0.4


@exercise
def tokens(answer):
    """`answer`: from how many tokens on GPT-3's `up` is right of an H100's ridge in bf16."""
    is_number(answer)
    h, f = PRESETS["gpt3-175b"].hidden, PRESETS["gpt3-175b"].feed_forward
    ridge = hardware.ridge("h100")
    exact = ridge * h * f / (h * f - ridge * (h + f))
    share = answer * h * f / (answer * (h + f) + h * f) / ridge
    assert answer > 0, "A number of tokens is positive."
    assert not 1.8 < answer / exact < 2.2, (
        "That is about a factor of two off: a multiplication and an addition are two FLOPs."
    )
    assert not 0.45 < answer / exact < 0.55, (
        "That is about a factor of two off: a number in bf16 has two bytes."
    )
    assert abs(answer / exact - 1) < 0.05, (
        f"With {answer:g} tokens the intensity is {share:.2f} of the ridge: it should be 1."
    )
    return f"{exact:.0f} tokens: with fewer, the product waits for its weights."


@exercise
def rate(answer):
    """`answer`: the tokens that a model of 8 billion parameters trains on in a second, by 6ND."""
    is_number(answer)
    expected = UTILISATION * PEAK / (6 * PARAMETERS)
    assert abs(answer * UTILISATION / expected - 1) > 0.01, (
        "That is at the peak; this GPU reaches 40 % of it."
    )
    assert abs(answer / expected / 3 - 1) > 0.01, (
        "2N FLOPs are the forward alone; backward takes twice as many."
    )
    assert abs(answer / expected - 1) < 0.01, (
        f"{answer:,.0f} is not right: how many FLOPs does a second have, and how many does a token need?"
    )
    return f"{expected:,.0f} tokens a second."
