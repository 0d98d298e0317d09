"""The exercises of the chapter ZeRO, stage by stage."""

import torch
import torch.distributed as dist

from allranks import launch, memory
from allranks.check import exercise
from allranks.model import GPT, digits, loss_of, train
from allranks.parallel import zero
from allranks.trace import trace

SECONDS = 20.0
NORM, LR, STEPS = 0.5, 3e-3, 3


def _model():
    torch.manual_seed(0)
    return GPT(layers=2, hidden=16, heads=2)


def _part(batch):
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def _whole(units):
    """The gradients of all slices, joined on every rank."""
    joined = []
    for unit in units:
        whole = torch.empty_like(unit.weights)
        dist.all_gather_single(whole, unit.mine.grad)
        joined += [view.flatten().clone() for view in zero.views(whole, unit.parameters)]
    return torch.cat(joined)


@exercise
def clip(answer):
    """`answer(slices, max_norm)` scales the gradients of this rank's slices as `clip_grad_norm_` would."""
    tokens = digits()[:8]

    def on_rank(max_norm):
        model = _model()
        units = zero.shard(zero.Zero2, [*model.layers, model])
        loss_of(model, _part(tokens)).backward()
        before = _whole(units)
        answer([unit.mine for unit in units], max_norm)
        return before, _whole(units)

    for world_size, max_norm in ((4, NORM), (2, 2 * NORM), (4, 1e3)):
        before, after = launch(on_rank, max_norm, world_size=world_size, timeout=SECONDS)[0]
        expected = before * min(1, max_norm / before.norm().item())
        assert max_norm > before.norm() or not torch.equal(before, after), (
            f"A gradient of norm {before.norm():.2f} should be scaled to norm {max_norm}; it is unchanged."
        )
        ratio = after / before
        ratio = ratio[before.abs() > 1e-6]
        assert ratio.max() - ratio.min() < 1e-3, (
            f"With {world_size} ranks the slices are scaled by different factors, from {ratio.min():.2f} "
            f"to {ratio.max():.2f}: each rank knows only the norm of its own part."
        )
        assert torch.allclose(after, expected, rtol=1e-3, atol=1e-7), (
            f"With {world_size} ranks, a gradient of norm {before.norm():.2f} clipped at {max_norm:g} has "
            f"norm {after.norm():.2f}."
        )
    return "Whatever the number of ranks, the gradient is clipped as one process would clip it."


@exercise
def keep(answer):
    """`answer`: a Zero3 that keeps the weights from forward to backward, and gathers once a step."""
    assert isinstance(answer, type), "Pass the class itself, not an instance."
    batches = digits()[: 8 * STEPS].split(8)

    def on_rank():
        model = _model()
        units = zero.shard(answer, [*model.layers, model])
        optimizer = torch.optim.AdamW([unit.mine for unit in units], lr=LR)
        losses = []
        for batch in batches:
            with trace() as counted:
                loss = loss_of(model, _part(batch))
                loss.backward()
                zero.step(optimizer, units)
            loss = loss.detach()
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
            losses.append(loss.item())
        left = sum(unit.weights.untyped_storage().nbytes() for unit in units)
        return losses, counted, left, len(units), sum(unit.weights.numel() for unit in units)

    serial = torch.tensor(train(_model(), batches, lr=LR))
    for losses, counted, left, units, elements in launch(on_rank, world_size=4, timeout=SECONDS):
        gathers = counted.calls["all_gather"]
        assert torch.allclose(torch.tensor(losses), serial, rtol=1e-4), (
            f"The losses differ from one process's: {losses[-1]:.3f} at step {STEPS}; expected "
            f"{serial[-1]:.3f}."
        )
        assert gathers == units, f"With {units} units it gathers {gathers} times a step; once each is enough."
        assert left == 0, f"After the step a rank still holds {left:,} bytes of whole weights; expected none."
        assert counted.sent == memory.zero_sent_bytes(elements, 4, 3, "fp32", resharded=False), (
            f"It sends {counted.sent:,.0f} bytes a step, not the bytes of one gather and one reduce-scatter."
        )
    return f"{units} gathers a step for {units} units: 2Ψ instead of 3Ψ, and whole weights until backward."
