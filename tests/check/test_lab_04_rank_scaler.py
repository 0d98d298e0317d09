"""Lab 04, one decision on all ranks: right answers in several styles, and what students get wrong."""

import pytest
import solved
import torch
import torch.distributed as dist
from students import judged_on_ranks

from allranks import check

ANSWERS = solved.answers("mixed_precision")
LossScaler = ANSWERS["LossScaler"]


class RankScaler(LossScaler):
    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        device = optimizer.param_groups[0]["params"][0].device
        found_inf = torch.tensor(float(self.found_inf), device=device)
        dist.all_reduce(found_inf, op=dist.ReduceOp.MAX)
        self.found_inf = found_inf.item() > 0


class BySum(LossScaler):
    def unscale_(self, optimizer):
        LossScaler.unscale_(self, optimizer)
        count = torch.tensor([int(self.found_inf)], device=optimizer.param_groups[0]["params"][0].device)
        dist.all_reduce(count)
        self.found_inf = bool(count.item())


class ByGather(LossScaler):
    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        mine = torch.tensor([self.found_inf], dtype=torch.uint8)
        each = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(each, mine)
        self.found_inf = any(bool(one) for one in each)


class ByMinimumOfFinite(LossScaler):
    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        finite = torch.tensor(0.0 if self.found_inf else 1.0)
        work = dist.all_reduce(finite, op=dist.ReduceOp.MIN, async_op=True)
        work.wait()
        self.found_inf = finite.item() == 0


REDUCED = "        dist.all_reduce(found_inf, op=dist.ReduceOp.MAX)\n"

RIGHT = [(RankScaler,), (BySum,), (ByGather,), (ByMinimumOfFinite,)]
WRONG = {
    "RankScaler": {
        "nobody is asked": ("from here on their weights differ", REDUCED, ""),
        "minimum": ("If one rank skips", "ReduceOp.MAX", "ReduceOp.MIN"),
        "product": ("If one rank skips", "ReduceOp.MAX", "ReduceOp.PRODUCT"),
        "exactly one overflow": (
            "If one rank skips",
            "ReduceOp.MAX",
            "ReduceOp.SUM",
            "item() > 0",
            "item() == 1",
        ),
        "a majority": (
            "from here on their weights differ",
            "ReduceOp.MAX",
            "ReduceOp.SUM",
            "item() > 0",
            "item() * 2 >= dist.get_world_size()",
        ),
        "rank 0 decides": (
            "from here on their weights differ",
            REDUCED,
            "        dist.broadcast(found_inf, src=0)\n",
        ),
        "the last rank decides": (
            "from here on their weights differ",
            REDUCED,
            "        dist.broadcast(found_inf, src=dist.get_world_size() - 1)\n",
        ),
        "rank 0 alone knows": (
            "from here on their weights differ",
            REDUCED,
            "        dist.reduce(found_inf, dst=0, op=dist.ReduceOp.MAX)\n",
        ),
        "gradients summed as well": (
            "ranks: on rank",
            REDUCED,
            REDUCED
            + "        for group in optimizer.param_groups:\n            for p in group['params']:\n                dist.all_reduce(p.grad)\n",
        ),
        "never unscaled": (
            "ranks: on rank",
            "        super().unscale_(optimizer)\n",
            "        self.found_inf = not all(p.grad.isfinite().all() for g in optimizer.param_groups for p in g['params'] if p.grad is not None)\n",
        ),
        "unscaled twice": (
            "ranks: on rank",
            "        super().unscale_(optimizer)\n",
            "        super().unscale_(optimizer)\n        super().unscale_(optimizer)\n",
        ),
        "objects gathered": (
            "one number is enough",
            REDUCED,
            "        each = [None] * dist.get_world_size()\n        dist.all_gather_object(each, self.found_inf)\n        found_inf = torch.tensor(float(any(each)))\n",
        ),
        "asked of the neighbour": (
            "one number is enough",
            REDUCED,
            "        other = torch.zeros_like(found_inf)\n        n, r = dist.get_world_size(), dist.get_rank()\n        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, found_inf, (r + 1) % n), dist.P2POp(dist.irecv, other, (r - 1) % n)])\n        [work.wait() for work in works]\n        found_inf = torch.maximum(found_inf, other)\n",
        ),
        "asked of the pair": (
            "ValueError",
            REDUCED,
            "        n, r = dist.get_world_size(), dist.get_rank()\n        groups = [dist.new_group([a, a + 1]) for a in range(0, n, 2)]\n        dist.all_reduce(found_inf, op=dist.ReduceOp.MAX, group=groups[r // 2])\n",
        ),
        "not waited for": (
            "from here on their weights differ",
            "ReduceOp.MAX)",
            "ReduceOp.MAX, async_op=True)",
        ),
        "asked before unscaling": (
            "from here on their weights differ",
            "        super().unscale_(optimizer)\n",
            "        self.found_inf = False\n",
            "item() > 0",
            "item() > 0\n        super().unscale_(optimizer)",
        ),
        "the scale shrinks too": (
            "ranks: on rank",
            "item() > 0",
            "item() > 0\n        if self.found_inf:\n            self.value *= self.backoff",
        ),
        "all gradients gathered to look": (
            "one number is enough",
            REDUCED,
            REDUCED
            + "        for group in optimizer.param_groups:\n            for p in group['params']:\n                if p.grad is not None:\n                    dist.all_reduce(p.grad.clone())\n",
        ),
        "a flag for each parameter": (
            "one number is enough",
            REDUCED,
            "        flags = torch.stack([torch.tensor(float(self.found_inf)) for _ in range(8)])\n        dist.all_reduce(flags, op=dist.ReduceOp.MAX)\n        found_inf = flags.max()\n",
        ),
        "any overflow counts as all, without asking": (
            "from here on their weights differ",
            REDUCED,
            "        dist.barrier()\n",
        ),
        "always": ("no rank has an overflow", "item() > 0", "item() > -1"),
        "decided in update": (
            "from here on their weights differ",
            REDUCED,
            "",
            "        self.found_inf = found_inf.item() > 0\n",
            "\n    def update(self):\n        t = torch.tensor(float(self.found_inf))\n        dist.all_reduce(t, op=dist.ReduceOp.MAX)\n        self.found_inf = t.item() > 0\n        super().update()\n",
        ),
        "turned round": ("from here on their weights differ", "item() > 0", "item() == 0"),
        "two asks a step": ("one number is enough", REDUCED, REDUCED + REDUCED),
    }
}


@pytest.mark.stamped("lab 04")
def test_every_answer_is_told_what_it_is(nothing_is_left_behind):
    judged_on_ranks(check.lab_04.rank_scaler, __name__)
