"""What the tasks of the lab share: models, devices, and how close is close enough."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from allranks.check.labs import are_close, drawn, is_tensor, on_ranks
from allranks.launch import LaunchError
from allranks.model import GPT
from allranks.trace import trace

RATE = 0.0123  # a learning rate that nobody has by accident
WORLDS = (3, {"backend": "gloo", "rules": "nccl"}), (2, {})


def device_of_rank():
    return "cuda" if "nccl" in dist.get_backend() else "cpu"


def plain(value):
    return value.detach() if isinstance(value, torch.Tensor) else value


def new_gpt(seed, kind=GPT):
    torch.manual_seed(drawn(seed))
    return kind(layers=1, hidden=16, heads=2)


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()


def is_close(value, expected, rtol=1e-3):
    return bool((value - expected).norm() <= rtol * expected.norm() + 1e-7)


def quoted(value):
    """A number or None as it is; of anything else, which may take lines to print, the type."""
    return repr(value) if value is None or isinstance(value, int | float) else f"a {type(value).__name__}"


def multiple_of(value, expected):
    """The factor by which `value` is a multiple of `expected`, or None if it is not one."""
    factor = float((value * expected).sum() / expected.square().sum())
    return factor if factor and is_close(value, factor * expected) else None


class Sent(trace):
    """A `trace` that notes (bytes, dtype) of each all-reduce in `sums`, and its tensor in `places`."""

    def __init__(self):
        super().__init__()
        self.sums, self.places = [], set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "c10d" and operator.overloadpacket.__name__.startswith("allreduce"):
            self.sums += [(t.nbytes, t.dtype) for t in args[0]]
            self.places |= {t.data_ptr() for t in args[0]}
        return super().__torch_dispatch__(operator, types, args, kwargs)


class Mixed(nn.Module):
    """A tied embedding, a layer in fp64, frozen weights, a gradient of zeros, and in `unused` none at all."""

    def __init__(self, unused=True):
        super().__init__()
        self.token, self.head = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.head.weight = self.token.weight
        self.first = nn.Linear(5, 5)
        self.wide = nn.Linear(5, 5).double()
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.last, self.silent = nn.Linear(5, 5), nn.Parameter(torch.ones(3))
        if unused:
            self.unused = nn.Linear(5, 3)

    def forward(self, tokens):
        x = self.first(self.token(tokens)).tanh()
        x = self.last(self.frozen(self.wide(x.double()).float())) + 0 * self.silent.sum()
        return F.cross_entropy(self.head(x), tokens)


def tokens_of(rank, step=0, vocabulary=7):
    """What `rank` learns from in this step: known only here, and different for each submission."""
    draw = torch.Generator().manual_seed(drawn(600 + 10 * step + rank))
    return torch.randint(vocabulary, (6,), generator=draw)


def gradients_of(model):
    gradients = ((name, p.grad) for name, p in model.named_parameters())
    return {name: g if g is None else g.detach().cpu().clone() for name, g in gradients}


def in_two_backwards(new_model, world_size):
    """The mean gradients of ranks after one backward, and after a second one that adds to them."""
    results, total = [], None
    for step in range(2):
        for rank in range(world_size):
            model = new_model()
            (model(tokens_of(rank, step)) / world_size).backward()
            own = gradients_of(model)
            pairs = own if total is None else {n: g if g is None else g + total[n] for n, g in own.items()}
            total = pairs
        results.append(dict(total))
    return results


def is_mean(gradient, expected, own, what, world_size):
    """Fail unless `gradient` is `expected`, the mean of ranks of which this one has `own`."""
    if expected is None:
        assert gradient is None, f"{what} is a tensor; it should stay None: no rank has one."
        return
    assert gradient is not None, f"{what} is None; expected the mean over ranks."
    is_tensor(gradient, what, expected.shape, expected.dtype)
    assert gradient.isfinite().all(), (
        f"{what} is NaN: under NCCL's rules, that is what a result holds until its all-reduce has been "
        "waited for."
    )
    rtol = 1e-9 if expected.dtype == torch.float64 else 1e-4
    if expected.any() and not is_close(own, expected, rtol):
        assert not is_close(gradient, own, rtol), f"{what} is still its own; expected the mean over ranks."
    factor = multiple_of(gradient, expected) if expected.any() else None
    if factor and abs(factor - 1) > 1e-3:
        near = abs(factor - world_size) < 1e-3
        raise AssertionError(
            f"{what} is the sum; divide it by {world_size}."
            if near
            else f"{what} is {factor:.3g} times the mean over {world_size} ranks."
        )
    are_close(gradient, expected, what, rtol=rtol)


def told_on_ranks(hints, test, *args, **options):
    """`on_ranks`; if ranks fail, add the first of `hints` whose key is in the sentence about it."""
    try:
        return on_ranks(test, *args, **options)
    except LaunchError as failure:
        for part, hint in hints.items():
            if part in str(failure):
                text = str(failure).removesuffix(".")
                raise AssertionError(f"Your function did not finish: {text}. {hint}") from failure
        raise
