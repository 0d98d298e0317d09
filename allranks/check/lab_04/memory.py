"""What a rank keeps of a step: parameters, gradients, moments, and activations in 16 bits or 32."""

import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.parallel import DistributedDataParallel

from allranks.check import exercise
from allranks.check.lab_04.common import BF16, FP16, FP32, device_of_rank, new_gpt
from allranks.check.labs import digits, drawn, hidden, is_written, on_ranks
from allranks.model import loss_of

KINDS = ("parameters", "gradients", "moments", "activations")


class Odd(nn.Module):
    """A layer whose saved tensors are parts of larger storages, integers and the same one twice."""

    def __init__(self):
        super().__init__()
        self.wide, self.frozen = nn.Linear(5, 12), nn.Linear(3, 7)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        y = self.wide(x)
        left = y[:, :3]
        z = self.frozen(left * left.sin()).relu()
        return z.gather(1, z.argmax(1, keepdim=True)).square().mean() + y.exp().mean()


SMALL = {"layers": 1, "hidden": 16, "heads": 2}
CASES = (  # what, the dtype of the parameters and that of autocast, steps before, sizes if it is a GPT
    ("a GPT in fp32 after a step of AdamW", FP32, None, 1, SMALL),
    ("a GPT under autocast in bf16 after a step of AdamW", FP32, BF16, 1, SMALL),
    ("a GPT under autocast in fp16 before any step", FP32, FP16, 0, SMALL),
    ("a module with a frozen part, after a step of SGD with momentum", FP32, None, 1, None),
    ("a module in bf16, after a step of AdamW", BF16, None, 1, None),
)


def _cases():
    return *CASES, *hidden(_larger)


def _larger(draw):
    sizes = {"layers": 2, "hidden": 8 * draw.randrange(3, 7), "heads": 2}
    return [("a larger GPT under autocast in bf16", FP32, BF16, 0, sizes)]


def _case(number, rank, device, wrap):
    """(model, optimizer, forward) of a case on a rank, after its steps; `forward` counts its calls."""
    what, stored, dtype, steps, sizes = _cases()[number]
    torch.manual_seed(drawn(number))
    if sizes:
        plain = new_gpt(sizes)
        batch = digits()[10 * rank : 10 * rank + 2 + rank]
        loss = loss_of
    else:
        plain, batch = Odd(), torch.randn(6 + 4 * rank, 5, dtype=stored)
        loss = type(plain).__call__
    model = wrap(plain.to(device, stored))
    first, *others = [p for p in plain.parameters() if p.requires_grad]
    groups = [{"params": [first]}, {"params": others}]
    is_sgd = "SGD" in what
    optimizer = torch.optim.SGD(groups, 0.01, momentum=0.9) if is_sgd else torch.optim.AdamW(groups)
    batch, calls = batch.to(device), []

    def forward():
        calls.append(1)
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            return loss(model, batch)

    for _ in range(steps):
        forward().backward()
        optimizer.step()
        optimizer.zero_grad()
    calls.clear()
    return plain, optimizer, forward, calls


def _kept(answer):
    results = []
    for number in range(len(_cases())):
        plain, optimizer, forward, calls = _case(
            number, dist.get_rank(), device_of_rank(), DistributedDataParallel
        )
        before = [p.detach().clone() for p in plain.parameters()]
        counted = answer(plain, optimizer, forward)
        if isinstance(counted, dict):
            counted = {name: float(n) for name, n in counted.items() if isinstance(n, int | float)}
        gradients = [p.grad is not None and bool(p.grad.any()) for p in plain.parameters() if p.requires_grad]
        same = all(torch.equal(p, old) for p, old in zip(plain.parameters(), before, strict=True))
        results.append((counted, len(calls), all(gradients), any(gradients), same))
    return results


@functools.cache
def _expected(number, rank, draw):
    """The right count of a case, and of each kind what mistakes would give: {kind: [(bytes, why)]}."""
    plain, optimizer, forward, _ = _case(number, rank, "cpu", lambda model: model)
    parameters, saved = list(plain.parameters()), []

    def keep(t):
        saved.append((t, t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()))
        return t

    with saved_tensors_hooks(keep, lambda t: t):
        loss = forward()
    loss.backward()
    own = {p.untyped_storage().data_ptr() for p in parameters}
    others = [one for one in saved if one[1] not in own]
    first = {place: t for t, place, _ in reversed(others)}

    def once(some):
        return sum({place: nbytes for _, place, nbytes in some}.values())

    states = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    right = {
        "parameters": sum(p.nbytes for p in parameters),
        "gradients": sum(p.grad.nbytes for p in parameters if p.grad is not None),
        "moments": sum(t.nbytes for t in states if t.ndim),
        "activations": once(others),
    }
    mistakes = {
        "gradients": [(right["parameters"], "A parameter that is frozen has no gradient; count `p.grad`")],
        "moments": [
            (sum(t.nbytes for t in states), "Step counters are not moments: they have no dimension"),
            (2 * right["parameters"], "SGD has one moment, a new optimizer none: measure them in `state`"),
        ],
        "activations": [
            (sum(nbytes for *_, nbytes in others), "Some are saved twice: a rank counts a storage once"),
            (once(saved), "Autograd also saves the parameters themselves, but no second copy of them"),
            (sum(t.nbytes for t in first.values()), "A view keeps the whole storage alive: count that"),
            (
                once([one for one in others if one[0].dtype not in (BF16, FP16)]),
                "The 16-bit tensors made inside autocast are kept as well, copies of weights included",
            ),
        ],
    }  # fmt: skip
    return right, mistakes


@exercise
def bytes_kept(answer):
    """`answer(model, optimizer, forward)`: bytes of parameters, gradients, moments and activations."""
    is_written(answer)
    for rank, results in enumerate(on_ranks(_kept, answer, world_size=2)):
        for number, result in enumerate(results):
            _judge_bytes(f"Rank {rank}, {_cases()[number][0]}", *result, *_expected(number, rank, drawn(0)))
    return (
        "All four counts are right, with views, a frozen parameter and 16-bit copies, on 2 ranks with "
        "different batches."
    )


def _judge_bytes(who, counted, calls, all_there, some_there, same, right, mistakes):
    assert isinstance(counted, dict) and set(counted) == set(KINDS), (
        f"{who}: the function returned {str(counted)[:60]}; expected a dict of bytes, of {', '.join(KINDS)}."
    )
    assert calls == 1, f"{who}: forward() was called {calls} times; it is one forward pass, inside the hooks."
    assert same, f"{who}: the weights have changed. The optimizer takes no step here; its state is only read."
    assert some_there, f"{who}: there are no gradients afterwards: call backward, and let the gradients stay."
    assert all_there, f"{who}: some gradients are gone: let them stay where backward put them."
    for kind in KINDS:
        value, expected = counted[kind], right[kind]
        reason = next((why for wrong, why in mistakes.get(kind, ()) if value == wrong != expected), None)
        reason = reason or ("A count of bytes, not of elements or megabytes: measure them" if value else "")
        assert value == expected, (
            f"{who}: {value:,.0f} bytes of {kind}; expected {expected:,}. {reason or 'Nothing was counted'}."
        )
