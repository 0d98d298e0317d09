"""The exercises of the chapter on reinforcement learning."""

import torch
import torch.distributed as dist

from allranks import inference, launch, transformer
from allranks.check import exercise
from allranks.check.answers import near

LAYOUTS = ((4, 2), (8, 2), (8, 4), (6, 3), (4, 4), (4, 1))  # ranks, parts
SHARES = ((2, 2), (1, 3), (2, 1, 1))  # samples on each rank
SECONDS = 20.0


@exercise
def groups(answer):
    """`answer(ranks, parts)`: groups of ranks, each in the order of its slices for generation."""
    for ranks, parts in LAYOUTS:
        where, size = f"{ranks} ranks, {parts} slice{'s' * (parts > 1)} for generation", ranks // parts
        found = answer(ranks, parts)
        assert isinstance(found, (list, tuple)) and all(isinstance(each, (list, tuple)) for each in found), (
            f"{where}: expected a list of lists of ranks; got {found!r}."
        )
        assert sorted(rank for each in found for rank in each) == list(range(ranks)), (
            f"{where}: every rank belongs to exactly one group; got {found!r}."
        )
        for each in found:
            assert len(each) == parts, f"{where}: the group {list(each)} should have {parts} ranks."
            for place, rank in enumerate(each):
                first, last = place * size, (place + 1) * size - 1
                assert first <= rank <= last, (
                    f"{where}: rank {rank} trains with slice {rank}, but in the group {list(each)} it "
                    f"generates with slices {first} to {last}, and would have to store its own as well."
                )
    return f"{len(LAYOUTS)} layouts: every rank's slice for training lies within its slice for generation."


def _of_own(answer, parts):
    return answer(parts[dist.get_rank()].clone())


@exercise
def shared_advantages(answer):
    """`answer(rewards)` on ranks, of (samples here, prompts), against one process with all samples."""
    for counts in SHARES:
        drawn = torch.rand(sum(counts), 5, generator=torch.Generator().manual_seed(len(counts)))
        off = drawn - drawn.mean(0)
        expected = (off / (drawn.std(0) + 1e-6)).split(counts)
        where = f"With {', '.join(map(str, counts))} samples on {len(counts)} ranks"
        on_ranks = launch(_of_own, answer, drawn.split(counts), world_size=len(counts), timeout=SECONDS)
        for rank, found in enumerate(on_ranks):
            assert torch.is_tensor(found) and found.shape == expected[rank].shape, (
                f"{where}, rank {rank} should return a tensor of shape {tuple(expected[rank].shape)}."
            )
            right = torch.allclose(found, expected[rank], rtol=1e-3, atol=1e-4, equal_nan=True)
            biased = expected[rank] * (sum(counts) / (sum(counts) - 1)) ** 0.5
            assert right or not torch.allclose(found, biased, rtol=1e-3, atol=1e-4), (
                f"{where}, divide the squares by the number of samples less one, as torch.std does."
            )
            assert right, (
                f"{where}, rank {rank} uses the wrong mean or standard deviation: both belong to the "
                "samples of all ranks."
            )
    return "The ranks share mean and deviation, even if one has more samples than another."


@exercise
def gigabytes(answer):
    """`answer`: GB that a rank receives, for Llama 3 70B in 16 bits, from 8 slices to 2."""
    weights = 2 * transformer.parameters(transformer.PRESETS["llama3-70b"]) / 1e9
    share = {way: inference.reshard(way, 8, 1, 1, 2).received for way in ("same groups", "regrouped")}
    near(
        answer,
        share["regrouped"] * weights,
        {
            share["same groups"] * weights: "That is what a rank receives if it gathers the whole model.",
            weights / 2: "That is what a rank needs; it holds an eighth of the weights already.",
            share["regrouped"] * weights / 2: "A weight in 16 bits takes two bytes.",
        },
    )
    return f"{share['regrouped'] * weights:.0f} GB, three eighths of {weights:.0f} GB."
