"""The exercises of the chapter Mesh-TensorFlow."""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

from allranks import launch
from allranks.check import exercise
from allranks.check.stubs import is_filled
from allranks.model import rank_device
from allranks.parallel.layout import einsum, layout, local
from allranks.trace import trace

SECONDS = 20.0
AXES = ("data", "tensor")  # of two ranks each
UP, DOWN = "batch io, io hidden -> batch hidden", "batch hidden, hidden io -> batch io"
BATCH, IO, HIDDEN = 512, 64, 256
MOST_HELD, MOST_SENT = 70_000, 200_000


def _mesh():
    device = rank_device()
    mesh = init_device_mesh(device, (2, 2), mesh_dim_names=AXES)
    dist.barrier()  # all have joined before one may fail
    return mesh, device


def _mlp(rules, batch=BATCH):
    """What a rank does in one forward and backward of the MLP: its counts, what it holds and multiplies."""
    mesh, device = _mesh()
    where = {"layout": rules, "mesh": mesh}
    x, up, down = (
        local(torch.ones(shape, device=device), dims, **where).clone().requires_grad_()
        for shape, dims in (
            ((batch, IO), "batch io"),
            ((IO, HIDDEN), "io hidden"),
            ((HIDDEN, IO), "hidden io"),
        )
    )
    with trace() as forward:
        y = einsum(DOWN, F.gelu(einsum(UP, x, up, **where)), down, **where)
    with trace() as backward:
        y.sum().backward()
    dist.barrier()
    held = 4 * (up.numel() + down.numel())
    work = x.numel() * up.shape[1] / (batch * IO * HIDDEN)
    return forward.calls.total(), backward.calls.total(), held, work, forward.sent + backward.sent


@exercise
def predicted(answer):
    """`answer` maps a layout to how many all-reduces the MLP has under it, (forward, backward)."""

    assert answer, "Predict at least one layout."

    def on_rank():
        return {text: _mlp(layout(text), batch=8)[:2] for text in answer}

    wrong = []
    for text, counted in launch(on_rank, world_size=4, timeout=SECONDS)[0].items():
        for direction, predicted, counts in zip(("forward", "backward"), answer[text], counted, strict=True):
            if predicted != counts:
                wrong.append(f"{text}, {direction}: counted {counts}, predicted {predicted}")
    assert not wrong, (
        f"{wrong[0]}{f', and {len(wrong) - 1} more' if wrong[1:] else ''}. Which of Y, ∂X and ∂W of each "
        "product lacks the dim that is cut?"
    )
    return f"Counted on four ranks, under all {len(answer)} layouts."


@exercise
def budget(answer):
    """`answer`: a layout of the MLP that keeps to a quarter of the work, MOST_HELD and MOST_SENT bytes."""
    is_filled(answer, "a layout")
    rules = layout(answer)
    for dim, axis in rules.items():
        assert dim in ("batch", "io", "hidden"), f"The MLP has no dim {dim}."
        assert axis in AXES, f"The mesh has no axis {axis}."
    *_, held, work, sent = launch(_mlp, rules, world_size=4, timeout=SECONDS)[0]
    assert work <= 0.25, f"A rank does {work:g} of the multiplications: at least one axis cuts nothing."
    assert held <= MOST_HELD, (
        f"A rank holds {held:,} bytes of the matrices; at most {MOST_HELD:,} are allowed."
    )
    assert sent <= MOST_SENT, (
        f"A rank sends {sent:,.0f} bytes; at most {MOST_SENT:,} are allowed. Which of the three tensors "
        "of a product is the largest, and which dim does it lack?"
    )
    return f"Each rank does a quarter of the work, holds {held:,} bytes and sends {sent:,.0f}."


def _rms(x):
    return x / (x * x).mean(-1, keepdim=True).sqrt()


@exercise
def norm(answer):
    """`answer(x, size, einsum)` is x over the root of its mean square, under every layout of its two dims."""
    torch.manual_seed(0)
    whole, direction = torch.randn(8, 12, requires_grad=True), torch.randn(8, 12)
    expected = _rms(whole)
    expected.backward(direction)
    texts = ("", "batch: data", "io: tensor", "batch: data, io: tensor", "io: data, batch: tensor")
    tensors = (whole.detach(), direction, expected.detach(), whole.grad)

    def on_rank():
        mesh, device = _mesh()
        found = {}
        for text in texts:
            where = {"layout": layout(text), "mesh": mesh}
            x, upstream, y, gradient = (local(t.to(device), "batch io", **where).clone() for t in tensors)
            x.requires_grad_()
            output = answer(x, 12, partial(einsum, **where))
            same = output.shape == y.shape and torch.allclose(output, y, atol=1e-5)
            if same:
                output.backward(upstream)
            found[text] = same, same and torch.allclose(x.grad, gradient, atol=1e-5)
        dist.barrier()
        return found

    for found in launch(on_rank, world_size=4, timeout=SECONDS):
        for text, (output, gradient) in found.items():
            assert output, (
                f"Under {text or 'a layout that cuts nothing'!r} the result differs from one process's: "
                "what has to be summed over all of io?"
            )
            assert gradient, (
                f"Under {text!r} the result is right but the gradient is not: each rank uses the sum for "
                "its own part of io, and einsum has to know that."
            )
    return f"Result and gradient equal one process's under {len(texts)} layouts."
