"""The exercises of the chapter on large batches."""

import math

import torch
import torch.distributed as dist

from allranks import batches, launch
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.trace import trace

SECONDS = 20.0
SIZES = ((3, 40), (7, 5), (2, 60))  # of tensors; a boundary of four ranks cuts some of them
NOISE, OF_A_RANK, EXTRA = 2000, 5, 0.25  # sequences, sequences, share of the examples


@exercise
def noise_scale(answer):
    """`answer(gradients, size)` is the unbiased noise scale of one step's accumulated gradients."""
    choose = torch.Generator().manual_seed(0)
    for count, size in ((8, 4), (3, 16)):
        gradients = [torch.randn(500, generator=choose) + 1 for _ in range(count)]
        mean = sum(gradients) / count
        local = sum(g.square().sum().item() for g in gradients) / count
        right, batch = (
            batches.noise_scale([(local, mean.square().sum().item())], size, count * size),
            count * size,
        )
        found = float(answer([g.clone() for g in gradients], size))
        biased = local - mean.square().sum().item()
        hints = {
            biased / mean.square().sum().item(): "that is still the function given in the exercise",
            right / size: f"each gradient is a mean of {size} examples; one example is noisier",
            right * (count - 1) / count: "a sample variance divides by the number of samples minus one",
            biased * count / (count - 1) * size / mean.square().sum().item(): (
                "the mean's own squared norm still contains noise"
            ),
        }
        for value, hint in hints.items():
            assert not math.isclose(found, value, rel_tol=1e-3), (
                f"With {count} gradients of {size} examples, you get {found:.3g} instead of {right:.3g}: "
                f"{hint}."
            )
        assert math.isclose(found, right, rel_tol=1e-3), (
            f"With {count} gradients of {size} examples, {batch} in all, you get {found:.3g}; expected "
            f"{right:.3g}."
        )
    return "This is the noise scale of a step, from micro-batches alone."


def _pieces(flat):
    """What a rank's quarter of the vector `flat` holds of each tensor."""
    mine = torch.arange(len(flat)).chunk(dist.get_world_size())[dist.get_rank()]
    ends = torch.tensor([a * b for a, b in SIZES]).cumsum(0).tolist()
    return [flat[mine[(mine >= start) & (mine < end)]] for start, end in zip([0, *ends], ends)]


@exercise
def lars_steps(answer):
    """`answer(weights, gradients, rate)` is each piece's step of LARS, with whole tensors' norms."""
    choose = torch.Generator().manual_seed(1)
    total = sum(a * b for a, b in SIZES)
    weights, gradients = torch.randn(2, total, generator=choose)

    def on_rank():
        with trace() as counted:
            steps = answer(_pieces(weights), _pieces(gradients), 0.1)
        dist.barrier()
        return [torch.as_tensor(s).clone() for s in steps], counted.bytes, counted.calls, counted.sent

    ranks = launch(on_rank, world_size=4, timeout=SECONDS, backend="gloo")
    start = 0
    for which, (a, b) in enumerate(SIZES):
        w, g = (t[start : start + a * b] for t in (weights, gradients))
        right = 0.1 * w.norm() / g.norm() * g
        found = [steps[which] for steps, *_ in ranks]
        held = sum(t.numel() for t in found)
        assert held == a * b, f"Tensor {which} has {a * b} elements, but the ranks' steps have {held}."
        off = (torch.cat(found) - right).norm() / right.norm()
        assert off < 1e-4, (
            f"The steps of tensor {which} on all ranks are off by {off:.0%}: each norm is the whole "
            "tensor's; squares add up over ranks, norms do not."
        )
        start += a * b
    _, nbytes, calls, _ = ranks[0]
    assert sum(calls.values()) == 1, (
        f"The steps are right, but took {sum(calls.values())} collectives; one is enough."
    )
    least = 2 * len(SIZES) * weights.itemsize
    assert sum(nbytes.values()) <= least, (
        f"The steps are right, but a message has {sum(nbytes.values())} bytes; {least} are enough."
    )
    return f"Pieces give the norms of whole tensors, with one call of {least} bytes."


@exercise
def ranks(answer):
    """`answer`: how many ranks finish soonest within 25 % more examples than the fewest."""
    right = EXTRA * NOISE / OF_A_RANK
    is_number(answer)
    assert abs(answer - NOISE / OF_A_RANK) > 0.5, (
        "That is a batch of the whole noise scale, which consumes twice the fewest examples."
    )
    assert abs(answer - EXTRA * NOISE) > 0.5, (
        "That is the batch; how many ranks compute it, 5 sequences each?"
    )
    assert abs(answer - right * (1 + EXTRA)) > 0.5, (
        "Almost: only the smallest batch needs the fewest examples."
    )
    over = batches.examples(answer * OF_A_RANK, NOISE, 1) / NOISE - 1 if answer > 0 else -1
    assert abs(answer - right) < 0.5, (
        f"With {answer:g} ranks the run consumes {over:.0%} more than the fewest examples."
    )
    return "100 ranks, each 80 % efficient."
