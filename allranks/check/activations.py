"""The exercises of the chapter Activations and recomputation."""

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from allranks import launch, memory
from allranks.check import exercise
from allranks.check.stubs import is_filled
from allranks.transformer import decoder

SECONDS = 20.0
SHAPES = ((2, 16, 32), (3, 8, 64))  # b, s, h


@exercise
def constants(answer):
    """`answer`: c and d of the sbh(c + d·as/h) bytes that a layer keeps without dropout."""
    assert isinstance(answer, tuple | list) and len(answer) == 2, "Two numbers, c and d."
    for part in answer:
        is_filled(part, "numbers")
    model = decoder(1, 64, 4, 8, 128)
    parts = {"core": 0, "small": 0}
    for tensor in memory.layer_tensors(model, dropout=False):
        part = tensor.part if tensor.part in parts else "rest"
        parts[part] = parts.get(part, 0) + tensor.nbytes
    expected = parts["rest"] / (128 * 64), parts["core"] / (4 * 128 * 128)
    c, d = answer
    assert c != 34, "34 includes dropout: two masks of one byte each."
    assert c == expected[0], f"c is not {c:g}: what does dropout alone keep outside the core?"
    assert d != 5, "5 includes dropout: which of the core's three tensors remain without it?"
    assert d not in (3, 4), (
        "Without dropout, the product with V reads the softmax output, which is already kept."
    )
    assert d == expected[1], f"d is not {d:g}: count the s × s tensors that a gradient reads."
    return f"sbh({c:g} + {d:g}as/h): two masks disappear, and of the core only the softmax remains."


@exercise
def feed_forward(answer):
    """`answer(x, up, down)`: keeps the inputs of `up` and GeLU only, and computes no product twice."""

    def on_rank(shapes):
        return [_measured(answer, *shape) for shape in shapes]

    for rank, results in enumerate(launch(on_rank, SHAPES, world_size=2, timeout=SECONDS)):
        for (b, s, h), (problem, kept, flops) in zip(SHAPES, results, strict=True):
            where = f"On rank {rank}, with b, s, h = {b}, {s}, {h},"
            assert problem is None, f"{where} {problem}."
            assert kept < 18, "It still keeps 18 sbh: the inputs of up, of GeLU and of down."
            assert kept >= 10, (
                f"{where} it keeps only {kept:g} sbh, but recomputes matrix products: {flops:g} forward "
                "passes instead of 3."
            )
            assert flops <= 3, (
                f"{where} it takes {flops:g} forward passes instead of 3: recompute only GeLU, no matrix "
                "product."
            )
            assert kept == 10, f"{where} it keeps {kept:g} sbh; 10 are enough."
    return "10 sbh instead of 18, the same gradients, three forward passes: only GeLU is recomputed."


def _measured(answer, b, s, h):
    """What is wrong with the results, or None; bytes kept in sbh; FLOPs in forwards."""
    torch.manual_seed(dist.get_rank())
    up, down = (nn.Linear(*sizes, dtype=torch.bfloat16) for sizes in ((h, 4 * h), (4 * h, h)))
    weights = [*up.parameters(), *down.parameters()]
    x = torch.randn(b, s, h, dtype=torch.bfloat16, requires_grad=True)
    down(F.gelu(up(x))).square().sum().backward()
    expected = [t.grad.clone() for t in (x, *weights)]
    for t in (x, *weights):
        t.grad = None
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage  # held, so that no place is used twice
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        output = answer(x, up, down)
    if not isinstance(output, torch.Tensor):
        return (
            "the function returns nothing yet" if output is None else "the function returns no tensor",
            0,
            0,
        )
    held = sum(s.nbytes() for place, s in kept.items() if place not in {w.data_ptr() for w in weights})
    if output.shape != x.shape:
        return f"the output has shape {tuple(output.shape)}; expected {tuple(x.shape)}", 0, 0
    if not torch.equal(output, down(F.gelu(up(x)))):
        return "the output differs from the feed-forward's", 0, 0
    if not output.requires_grad:
        return "backward cannot go through the output", 0, 0
    output.square().sum().backward()
    if not all(t.grad is not None and torch.equal(t.grad, e) for t, e in zip((x, *weights), expected)):
        return "the gradients differ from the feed-forward's", 0, 0
    with FlopCounterMode(display=False) as counter:
        answer(x, up, down).sum().backward()
    return None, held / (b * s * h), counter.get_total_flops() / (16 * b * s * h * h)
