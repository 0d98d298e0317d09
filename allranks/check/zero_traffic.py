"""The exercises of the chapter What ZeRO's traffic costs."""

from allranks import hardware, memory
from allranks.check import exercise
from allranks.check.stubs import is_number

UTILISATION = 0.5
PARAMETERS, GPUS, ROOM, MICROBATCHES = 13e9, 64, 70e9, 8


@exercise
def tokens(answer):
    """`answer`: tokens a rank and step from which stage 3 takes no longer to send than to compute."""
    is_number(answer)
    rate = UTILISATION * hardware.ACCELERATORS["a100-80gb"].peak["bf16"]
    bandwidth = hardware.LINKS["infiniband-hdr"].bandwidth
    expected = 6 * rate / (6 * bandwidth)
    assert abs(answer / (expected * 2 / 3) - 1) > 0.02, "That is for 2Ψ, stages 0 to 2; stage 3 sends 3Ψ."
    assert abs(answer / (expected / UTILISATION) - 1) > 0.02, (
        "That is at the peak; here the GPU computes at half of it."
    )
    assert abs(answer / (expected / 2) - 1) > 0.02, (
        "That is a factor of two off: each element sent has 2 bytes."
    )
    assert abs(answer / expected - 1) <= 0.02, (
        f"With {answer:,.0f} tokens the two times are not equal: what does each token cost to compute?"
    )
    return f"{expected:,.0f} tokens, whatever the size of the model."


@exercise
def stage(answer):
    """`answer`: the stage that fits and sends the fewest bytes in a step of many micro-batches."""
    is_number(answer)
    assert answer in range(4), f"The stages are 0, 1, 2 and 3, not {answer}."
    held = [memory.zero_bytes(PARAMETERS, GPUS, number) for number in range(4)]
    sent = [
        memory.zero_sent_bytes(PARAMETERS, GPUS, number, microbatches=MICROBATCHES) for number in range(4)
    ]
    assert held[answer] <= ROOM, (
        f"Stage {answer} holds {held[answer] / 1e9:.0f} GB on each GPU; there is room for "
        f"{ROOM / 1e9:.0f} GB."
    )
    expected = min((number for number in range(4) if held[number] <= ROOM), key=sent.__getitem__)
    assert answer == expected, (
        f"Stage {answer} fits, and sends {sent[answer] / sent[expected]:.1f} times as much as the best one: "
        "what does each micro-batch send?"
    )
    return (
        f"Stage {expected}: {held[expected] / 1e9:.0f} GB a GPU, {sent[expected] / 1e9:.0f} GB sent a step."
    )
