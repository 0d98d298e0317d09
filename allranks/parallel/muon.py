"""How do ranks orthonormalise matrices of which each holds only some rows? Muon: whole, gathered, by owners.

Muon steps along the momentum with its singular values near 1 (Jordan et al. 2024). It takes the whole matrix
to compute them. A rank that holds rows fetches the others (Liu et al. 2025, Algorithm 1), or one rank does
the work for all. Newton-Schulz begins in bfloat16, so what is sent in bfloat16 loses nothing.
"""

import torch
import torch.distributed as dist


def orthonormalise(matrix, steps=5):
    """Return the matrix with its singular values near 1, in bfloat16 (Jordan et al. 2024).

    After five steps, those that were above 2/1000 of the matrix's length lie between 0.5 and 1.5.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix).bfloat16()
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.addmm(x, polynomial, x, beta=a)
    return x.T if tall else x


def direction(p, state, momentum):
    """Return the gradient of `p` with Nesterov momentum, and update `state`."""
    if not state:
        state["momentum"] = torch.zeros_like(p)
    state["momentum"].lerp_(p.grad, 1 - momentum)
    return p.grad.lerp(state["momentum"], momentum)


class Muon(torch.optim.Optimizer):
    """Muon for matrices that are whole on this rank; equal to torch.optim.Muon."""

    ranks = 1  # that share a matrix

    def __init__(self, matrices, lr, momentum=0.95, decay=0.1):
        super().__init__(matrices, dict(lr=lr, momentum=momentum, decay=decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            matrices, momentum = group["params"], group["momentum"]
            along = [direction(p, self.state[p], momentum) for p in matrices]
            for p, update in zip(matrices, self.orthonormal(along), strict=True):
                stretch = max(1, self.ranks * p.shape[0] / p.shape[1]) ** 0.5
                p.mul_(1 - group["lr"] * group["decay"])
                p.add_(update, alpha=-group["lr"] * stretch)

    def orthonormal(self, parts):
        return [orthonormalise(part) for part in parts]


class GatheredMuon(Muon):
    """Muon for ranks with equal numbers of rows of each matrix: all ranks orthonormalise all matrices."""

    def __init__(self, matrices, lr, **options):
        super().__init__(matrices, lr, **options)
        self.ranks = dist.get_world_size()

    def orthonormal(self, parts):
        rows = torch.cat([part.bfloat16().flatten() for part in parts])
        every = rows.new_empty(self.ranks, len(rows))
        dist.all_gather_single(every, rows[None])
        pieces = every.split([part.numel() for part in parts], dim=1)
        whole = [piece.reshape(-1, part.shape[1]) for piece, part in zip(pieces, parts, strict=True)]
        return [orthonormalise(matrix).chunk(self.ranks)[dist.get_rank()] for matrix in whole]


class OwnedMuon(GatheredMuon):
    """Muon for ranks with equal numbers of rows of each matrix, one of which orthonormalises it: its owner.

    matrices: a list. owners: for each the rank that orthonormalises it; by default they take turns.
    """

    def __init__(self, matrices, lr, owners=None, **options):
        super().__init__(matrices, lr, **options)
        self.owners = owners or [k % self.ranks for k in range(len(matrices))]

    def orthonormal(self, parts):
        order = sorted(range(len(parts)), key=self.owners.__getitem__)
        to_owner = [0] * self.ranks
        for k in order:
            to_owner[self.owners[k]] += parts[k].numel()
        from_each = [to_owner[dist.get_rank()]] * self.ranks
        rows = torch.cat([parts[k].bfloat16().flatten() for k in order])
        mine = rows.new_empty(sum(from_each))
        dist.all_to_all_single(mine, rows, from_each, to_owner)
        owned = [k for k in order if self.owners[k] == dist.get_rank()]
        pieces = mine.view(self.ranks, -1).split([parts[k].numel() for k in owned], dim=1)
        for k, piece in zip(owned, pieces, strict=True):
            update = orthonormalise(piece.reshape(-1, parts[k].shape[1]))
            piece.copy_(update.reshape(self.ranks, -1))
        dist.all_to_all_single(rows, mine, to_owner, from_each)
        pieces = rows.split([parts[k].numel() for k in order])
        updates = dict(zip(order, pieces, strict=True))
        return [updates[k].view_as(part) for k, part in enumerate(parts)]


class Rows:
    """Equal numbers of rows of each matrix for each rank, in one vector; the rank updates its `parts`."""

    def __init__(self, matrices):
        self.matrices, self.ranks = matrices, dist.get_world_size()
        self.sizes = [matrix.numel() // self.ranks for matrix in matrices]
        self.mine = self.by_rank(matrices)[dist.get_rank()].clone()
        self.parts = list(self.cut(self.mine))

    def by_rank(self, matrices):
        return torch.cat([matrix.detach().reshape(self.ranks, -1) for matrix in matrices], dim=1)

    def cut(self, vector):
        for part, matrix in zip(vector.split(self.sizes), self.matrices, strict=True):
            yield part.view(-1, matrix.shape[1])

    def before_step(self):
        """Give each part its rows of the gradient, averaged over the ranks."""
        gradient = torch.empty_like(self.mine)
        every = self.by_rank([matrix.grad for matrix in self.matrices])
        dist.reduce_scatter_single(gradient, every.flatten(), op=dist.ReduceOp.AVG)
        for part, rows in zip(self.parts, self.cut(gradient), strict=True):
            part.grad = rows

    def after_step(self):
        """Put the matrices together again from the parts of all ranks."""
        every = self.mine.new_empty(self.ranks, len(self.mine))
        dist.all_gather_single(every, self.mine[None])
        for matrix, rows in zip(self.matrices, every.split(self.sizes, dim=1), strict=True):
            matrix.data.copy_(rows.reshape(matrix.shape))
