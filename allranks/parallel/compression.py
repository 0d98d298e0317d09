"""What may a rank leave out of a gradient? What it sends later: sparse and low-rank averages with residuals.

Each rank adds what it did not send to its next gradient, so that nothing is lost, only late (Aji & Heafield
2017; error feedback of PowerSGD, Vogels et al. 2019, Algorithm 2).
"""

import torch
import torch.distributed as dist


class Sparse:
    """Averages the `count` largest elements of each rank's vector; the rest waits in `residual`."""

    def __init__(self, count, keep=True):
        self.count, self.keep, self.residual = count, keep, 0

    def average(self, gradient):
        total = gradient + self.residual
        places = total.abs().topk(self.count).indices.to(torch.int32)
        values = total[places]
        if self.keep:
            self.residual = total.index_fill(0, places.long(), 0)
        ranks = dist.get_world_size()
        all_places = places.new_empty(ranks * self.count)
        all_values = values.new_empty(ranks * self.count)
        dist.all_gather_single(all_places, places)
        dist.all_gather_single(all_values, values)
        return torch.zeros_like(gradient).index_add_(0, all_places, all_values / ranks)


class LowRank:
    """Averages a matrix as the product of two thin factors; starts from `q`, columns × rank."""

    def __init__(self, q):
        self.q, self.residual = q, 0

    def average(self, gradient):
        total = gradient + self.residual
        p = total @ torch.linalg.qr(self.q).Q
        dist.all_reduce(p)
        p = torch.linalg.qr(p).Q
        self.q = total.T @ p
        dist.all_reduce(self.q, op=dist.ReduceOp.AVG)
        self.residual = total - p @ self.q.T
        return p @ self.q.T
