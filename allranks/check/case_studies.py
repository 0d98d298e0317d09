"""The exercises of the chapter Case studies."""

from allranks import hardware, plan, transformer
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.published.cases import OLMO2

GPUS, DAYS, LOST = 512, 30, 6
PARAMETERS, SHARE = 13.7e9, 0.38
BATCH = 1152


def _trillions(days, share=SHARE):
    done = share * hardware.peak("h100") * GPUS * days * 86_400
    return done / transformer.training_flops(PARAMETERS, 1) / 1e12


@exercise
def month(answer):
    """`answer`: trillions of tokens in the days that train."""
    is_number(answer)
    expected = _trillions(DAYS - LOST)
    assert not _near(answer, 1e12 * expected), "Give the answer in trillions."
    assert not _near(answer, _trillions(DAYS)), "That is a month without failures."
    assert not _near(answer, _trillions(LOST)), "Those are the tokens of the days lost."
    assert not _near(answer, _trillions(DAYS - LOST, 1)), "That is at the GPUs' peak; they reach 38 % of it."
    assert not _near(answer, 3 * expected), "The backward pass counts too: six FLOPs, not two."
    assert _near(answer, expected), (
        f"{answer:.3g} trillion is not right: how many FLOPs fit in 24 days, and what does a token take?"
    )
    return f"{expected:.2f} trillion tokens; 30 days without a failure would give {_trillions(DAYS):.2f}."


@exercise
def sharing(answer):
    """`answer`: the fewest GPUs that share a matrix, if replicas divide both GPUs and sequences."""
    is_number(answer)
    legal = plan.layouts(OLMO2, GPUS, BATCH, at_most={"pp": 1, "cp": 1})
    expected = min(each.tp for each in legal)
    assert answer >= 1 and GPUS % answer == 0, f"{answer:g} does not divide the {GPUS} GPUs."
    replicas = GPUS // int(answer)
    assert BATCH % replicas == 0, (
        f"That leaves {replicas} replicas, and {BATCH} sequences do not divide evenly among them."
    )
    assert answer == expected, f"Legal, but fewer are enough: {replicas} is not the greatest common divisor."
    return (
        f"{expected} GPUs share a matrix, and each of {replicas} replicas has {BATCH // replicas} sequences."
    )


def _near(one, other):
    return abs(one / other - 1) < 0.02
