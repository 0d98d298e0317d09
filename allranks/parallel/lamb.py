"""How does LAMB scale a layer's step, and what must ranks send that hold only slices of the layer?

Adam's update of each tensor is scaled to the length of the tensor's weights (You et al. 2020, Algorithm 2,
but without the correction of its moments' bias).
A length belongs to a whole tensor. A rank that holds a part of it needs the other parts' squares.
"""

import torch
import torch.distributed as dist


def direction(p, state, group):
    """Return where Adam would move `p`, decay included; its length does not matter. Updates `state`."""
    β1, β2 = group["betas"]
    if not state:
        state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
    state["m"].mul_(β1).add_(p.grad, alpha=1 - β1)
    state["v"].mul_(β2).addcmul_(p.grad, p.grad, value=1 - β2)
    return state["m"] / (state["v"].sqrt() + group["eps"]) + group["decay"] * p


class Lamb(torch.optim.Optimizer):
    """LAMB without Adam's bias correction; weight decay is a part of the update that is scaled.

    Weights count as at most `longest` in length. A tensor of zeros takes Adam's step as it is. Tensors may be
    DTensors (FSDP2): their lengths are those of the whole, and torch sends what that takes.
    """

    def __init__(self, parameters, lr, betas=(0.9, 0.999), decay=0.0):
        options = dict(lr=lr, betas=betas, eps=1e-6, decay=decay, longest=10.0)
        super().__init__(parameters, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            weights = group["params"]
            updates = [direction(p, self.state[p], group) for p in weights]
            lengths = self.lengths([*weights, *updates])
            for k, (p, update) in enumerate(zip(weights, updates, strict=True)):
                w, u = lengths[k].clamp(max=group["longest"]), lengths[k + len(weights)]
                trust = w / (u + group["eps"])
                p.sub_(group["lr"] * torch.where(trust > 0, trust, 1.0) * update)

    def lengths(self, tensors):
        return [torch.linalg.vector_norm(t) for t in tensors]


class SlicedLamb(Lamb):
    """LAMB where each rank holds a piece of each tensor, which may be empty: one all-reduce more a step.

    All ranks give their pieces in the same order. The all-reduce carries two numbers for each tensor.
    """

    def lengths(self, tensors):
        squares = torch.stack([t.square().sum() for t in tensors])
        dist.all_reduce(squares)
        return squares.sqrt()


def pieces(mine, parameters):
    """Return what the rank's slice `mine` of a flat vector holds of each parameter: views, some empty.

    The vector holds the parameters one after another, and the ranks' slices are equal, as in `zero.flatten`.
    """
    first, start, found = dist.get_rank() * len(mine), 0, []
    for p in parameters:
        edges = (start - first, start - first + p.numel())
        low, high = (min(max(edge, 0), len(mine)) for edge in edges)
        found.append(mine[low:high])
        start += p.numel()
    return found
