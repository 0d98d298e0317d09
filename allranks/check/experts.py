"""The exercises of the chapter Experts: a router and two all-to-alls."""

import torch
import torch.distributed as dist

from allranks import experts, launch
from allranks.check import exercise
from allranks.check.stubs import is_number
from allranks.transformer import PRESETS

SECONDS = 20.0


@exercise
def megabytes_sent(answer):
    """`answer`: megabytes (1e6) each of 8 ranks with 8192 tokens sends for a layer of Mixtral, in buffers."""
    model, ranks, tokens = PRESETS["mixtral-8x7b"], 8, 8192
    k = model.active_experts
    capacity = experts.expert_capacity(tokens, model.experts, k, 1.25)
    once = experts.dispatch_bytes(model.experts, capacity, model.hidden, ranks) / 1e6
    expected = 4 * once
    is_number(answer)
    for factor, hint in (
        (1 / 4, "That is one all-to-all. How many does a layer have, forward and backward?"),
        (1 / 2, "That is forward alone, one byte an element, or one expert a token."),
        (8 / 7, "That includes the eighth of the buffers that stays on the rank."),
        (1 / 1.25, "That leaves out the empty slots; the capacity factor is 1.25."),
    ):
        assert abs(answer / (expected * factor) - 1) > 0.01, hint
    assert abs(answer / expected - 1) <= 0.01, (
        f"{answer:g} MB is not right: what does one all-to-all send, and how many are there?"
    )
    return f"{expected:.0f} MB, from each rank, for each layer."


@exercise
def average(answer):
    """`answer(gradient, of_expert, same)` on 4 ranks with two copies of the experts, each on two ranks."""
    whole = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))  # a row for each rank

    def on_rank():
        rank = dist.get_rank()
        same = [dist.new_group(members) for members in ([0, 2], [1, 3])][rank % 2]
        expert, gate = whole[rank].clone(), whole[rank].clone()
        answer(expert, True, same)
        answer(gate, False, same)
        dist.barrier()
        return expert, gate

    copies = whole[[0, 1]] + whole[[2, 3]]  # each expert's sum over the two ranks that hold it
    results = launch(on_rank, world_size=4, timeout=SECONDS)
    for rank, (expert, gate) in enumerate(results):
        assert torch.allclose(gate, whole.mean(0)), (
            f"On rank {rank} a gradient of the gate is not the mean over the four ranks."
        )
        for wrong, hint in (
            (whole[rank], "is unchanged, but its other copy has seen the tokens of two more ranks."),
            (whole.mean(0), "is averaged over all ranks, and thus over different experts."),
            (copies[rank % 2] / 2, "is twice too large. How many ranks' tokens does it already add up?"),
            (copies[rank % 2], "is a sum. What is the mean of four ranks' losses divided by?"),
        ):
            assert not torch.allclose(expert, wrong), f"On rank {rank} the gradient of an expert {hint}"
        assert torch.allclose(expert, copies[rank % 2] / 4), (
            f"On rank {rank} the gradient of an expert is not the gradient of the mean loss over four ranks."
        )
    return "The gradients are those of the mean loss over four ranks, and no two experts are mixed."
