"""How is communication hidden behind backward? Gradients leave in buckets while earlier layers compute.

A bucket leaves when its last gradient is ready and the buckets before it have left, so that all ranks send
the same buckets in the same order. The buckets are those of torch's `DistributedDataParallel` (Li et al.
2020, section 3.2), and so are the gradients, bit by bit, as long as each parameter gets one in each backward.
"""

import torch
import torch.distributed as dist


class Bucket:
    """One vector for the gradients of `parameters`, averaged by one all-reduce."""

    def __init__(self, parameters):
        self.flat = torch.cat([torch.zeros_like(p).flatten() for p in parameters])
        pieces = self.flat.split([p.numel() for p in parameters])
        self.views = {p: t.view_as(p) for p, t in zip(parameters, pieces)}
        self.missing = set(parameters)

    def put(self, p):
        torch.mul(p.grad, 1 / dist.get_world_size(), out=self.views[p])
        self.missing.remove(p)

    def leave(self):
        self.work = dist.all_reduce(self.flat, async_op=True)

    def arrive(self):
        self.work.wait()
        for p, view in self.views.items():
            p.grad.copy_(view)
        self.missing = set(self.views)


class Reducer:
    """Averages gradients over all ranks inside backward; `lists` says which parameters share a bucket.

    Each parameter has to get a gradient in each backward: without it, its bucket and all later ones stay.
    """

    bucket = Bucket

    def __init__(self, lists):
        self.arrange(lists)
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self.ready)

    def arrange(self, lists):
        self.buckets = [self.bucket(parameters) for parameters in lists]
        self.bucket_of = {p: b for b in self.buckets for p in b.views}
        self.waiting = list(self.buckets)

    def ready(self, p):
        self.bucket_of[p].put(p)
        while self.waiting and not self.waiting[0].missing:
            self.waiting.pop(0).leave()
        if not self.waiting:
            self.finish()

    def finish(self):
        for bucket in self.buckets:
            bucket.arrive()
        self.waiting = list(self.buckets)


def packed(parameters, first, cap):
    """Cut a list of parameters into lists, in order: one ends when it holds `cap` bytes or more.

    The first one ends at `first` bytes. A parameter is never cut, so a list may hold more than its limit.
    """
    lists, held = [[]], 0
    for p in parameters:
        if held >= (cap if len(lists) > 1 else first):
            lists, held = [*lists, []], 0
        lists[-1].append(p)
        held += p.nbytes
    return lists


class DDP(Reducer):
    """Starts with rank 0's weights and one bucket; after the first backward, packs in the order of arrival.

    first, cap: bytes that close a bucket. While `sync` is False, gradients add up on their rank.
    """

    def __init__(self, model, first=2**20, cap=25 * 2**20):
        for t in model.state_dict().values():
            dist.broadcast(t, src=0)
        super().__init__([[p for p in model.parameters() if p.requires_grad]])
        self.order, self.limits, self.sync = [], (first, cap), True

    def ready(self, p):
        if self.sync:
            self.order.append(p)
            super().ready(p)

    def finish(self):
        super().finish()
        if self.limits:
            self.arrange(packed(self.order, *self.limits))
            self.limits = None
