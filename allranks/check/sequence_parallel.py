"""The exercises of the chapter Sequence parallelism."""

import torch
import torch.distributed as dist

from allranks import launch
from allranks.check import exercise

SECONDS = 20.0
RATES = (0.5, 0.1)  # of two calls, one after the other
SUMMANDS = {
    "norm.weight": "it is whole, but each rank applies it to other tokens",
    "query_norm.weight": "it is whole, but each rank applies it to other heads",
    "out.bias": "it is added after the scatter, to a part of the tokens",
    "position": "it is whole, but each rank looks up only some of its rows",
}
CUT = {
    "query.weight": "it is cut by heads, so no other rank has this slice",
    "up.bias": "it is cut with the columns of its matrix",
    "out.weight": "it is cut by rows, so no other rank has this slice",
}


@exercise
def dropout(answer):
    """`answer(x, rate)` drops out of a part of the sequence what one process drops out of all of it."""

    def on_rank(x):
        torch.manual_seed(0)
        parts = [answer(x.chunk(4, 1)[dist.get_rank()].clone(), rate) for rate in RATES]
        dist.barrier()
        return parts

    torch.manual_seed(1)
    x = torch.randn(2, 32, 8).abs() + 0.1
    ranks = launch(on_rank, x, world_size=4, timeout=SECONDS)
    torch.manual_seed(0)
    for call, rate in enumerate(RATES):
        expected = torch.native_dropout(x, rate, True)[0]
        parts = [parts[call] for parts in ranks]
        for rank, part in enumerate(parts):
            assert part is not None, f"Rank {rank} returns None; `drop` should return what is left of `x`."
            assert isinstance(part, torch.Tensor), f"Rank {rank} returns {type(part).__name__}, not a tensor."
            assert part.shape == (2, 8, 8), (
                f"Rank {rank} returns shape {tuple(part.shape)}; expected (2, 8, 8)."
            )
        masks = [part != 0 for part in parts]
        assert not all(torch.equal(mask, masks[0]) for mask in masks), (
            "All ranks drop the same positions of their parts, because all draw from the same RNG state."
        )
        joined = torch.cat(parts, dim=1)
        if call and not torch.equal(joined != 0, expected != 0):
            raise AssertionError(
                "The first call is right but the second is not: how many numbers has one process drawn "
                "by then?"
            )
        assert torch.equal(joined != 0, expected != 0), (
            "The ranks drop different positions, but not the ones that one process drops. Which ranks' "
            "numbers does it draw before a rank's own?"
        )
        assert torch.allclose(joined, expected), (
            "The positions are right, but what is left has to be divided by 1 - rate."
        )
    return "Together the parts equal one process's dropout, call after call."


@exercise
def summands(answer):
    """`answer`: the names of the gradients to sum, and the one that tensor parallelism alone has to sum."""
    assert isinstance(answer, tuple | list) and len(answer) == 2, "Give a set of names, and one name."
    names, already = answer
    names = {names} if isinstance(names, str) else set(names)
    for name in sorted(names):
        assert name in SUMMANDS or name in CUT, f"{name} is not one of the names."
        assert name not in CUT, f"{name} does not belong in the set: {CUT[name]}."
    for name, why in SUMMANDS.items():
        assert name in names, f"One is missing. Look for a parameter that ranks use in different ways: {why}."
    assert already is not None, (
        "The set is right, but not the name: which of them sees only its rank's heads?"
    )
    assert already == "query_norm.weight", (
        f"The set is right. But with tensor parallelism alone, {already} sees the same tokens on all "
        "ranks; which one sees only its rank's heads?"
    )
    return "These are whole, but ranks use them for different tokens or different heads."
