"""A right answer is right for every submission's draw: what chance can bring about costs nobody a point."""

import math
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

from allranks import launch
from allranks.check.lab_02 import means, stepping
from allranks.check.lab_03 import strategies
from allranks.check.lab_04 import autocast, clipping, runs
from allranks.check.lab_04.common import FP16
from allranks.check.lab_07 import common
from allranks.ports import free_port

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_mean_may_be_near_a_ranks_own_value():
    near, far = torch.tensor([0.2, 1.5, 2.803]), torch.tensor([0.2, 1.9, 2.803])
    means._is_mean_of_values(near.mean(), near, 1, "it")
    with pytest.raises(AssertionError, match="its own value"):
        means._is_mean_of_values(far[1], far, 1, "it")
    with pytest.raises(AssertionError, match="is the sum"):
        means._is_mean_of_values(near.sum(), near, 1, "it")
    with pytest.raises(AssertionError, match="2 times the mean"):
        means._is_mean_of_values(2 * far.mean(), far, 1, "it")


def test_a_mean_loss_may_be_near_that_of_a_ranks_own_rows():
    stepping._is_mean_loss(2.75, right=2.75, own=2.750005, what="it")
    with pytest.raises(AssertionError, match="its own rows only"):
        stepping._is_mean_loss(2.76, right=2.75, own=2.76, what="it")


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.01005, 1.02, 3.0])
def test_a_norm_may_be_near_the_one_at_which_it_is_clipped(factor):
    gradient, max_norm = factor * torch.tensor([0.06, -0.08]), 0.1

    def judge(norm, clipped):
        moved = -clipping.LR * gradient * clipped
        clipping._judge_clipping(norm, moved, 8.0, 1, gradient, max_norm, 8.0, 8.0, "it")

    judge(factor * max_norm, 1 / factor)
    if factor > 1.02:
        with pytest.raises(AssertionError, match="nothing had been clipped"):
            judge(factor * max_norm, 1.0)
        with pytest.raises(AssertionError, match="norm after clipping"):
            judge(max_norm, 1 / factor)


def test_no_draw_of_logits_and_targets_has_a_loss_of_zero():
    for seed in range(100):
        torch.manual_seed(seed)
        logits, targets = autocast._input(FP16, 1, 9, 15000.0)
        assert F.cross_entropy(logits.double(), targets) > 1


def test_parts_whose_loss_hardly_falls_are_drawn_again(monkeypatch):
    drawn = runs._parts(2, 0), runs._parts(2, 1)
    assert not drawn[0].equal(drawn[1])

    def expected(name, parts, victim):
        return (name, parts), parts.equal(drawn[1]) or name != "bf16"

    monkeypatch.setattr(runs, "_expected", expected)
    parts, found = runs._runs.__wrapped__(2, 1, ("fp32", "bf16"), 0)
    assert parts.equal(drawn[1]) and found["fp32"][1] is parts
    monkeypatch.setattr(runs, "_expected", lambda *_: (None, False))
    with pytest.raises(RuntimeError, match="20 draws"):
        runs._runs.__wrapped__(2, 1, ("fp32",), 0)


@pytest.mark.skipif(not EPHEMERAL.exists(), reason="Linux says which ports it gives away")
def test_the_port_of_torchrun_is_none_that_the_system_gives_away_meanwhile():
    first, _ = map(int, EPHEMERAL.read_text(encoding="utf-8").split())
    assert all(1024 <= free_port() < first for _ in range(20))


def test_a_number_that_large_ones_cancel_to_has_their_rounding_error(monkeypatch):
    monkeypatch.setattr(common.dist, "get_rank", lambda: 0)
    expected = torch.tensor([9.0, -7.0, 1e-3])
    common.must_be(expected + torch.tensor([0.0, 0.0, 2e-6]), expected, "It", "")
    for wrong in (expected * torch.tensor([1.0, 1.0, 4.0]), expected * 1.001, expected * math.nan):
        with pytest.raises(common.Refusal, match="relative error"):
            common.must_be(wrong, expected, "It", "")
    nearly_zero = torch.full((16,), 1e-8)  # the gradient of a key's bias
    common.must_be(nearly_zero, -nearly_zero, "It", "")
    with pytest.raises(common.Refusal, match="relative error"):
        common.must_be(nearly_zero + 1e-4, nearly_zero, "It", "")


def halves(layers, rest, budget, device):
    shape = 2, dist.get_world_size() // 2
    return {"mesh": init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))}


def groups_left(cases):
    choices = strategies._chosen(halves, cases)
    return len(choices), len(dist.distributed_c10d._world.pg_map)


def test_meshes_that_were_looked_at_leave_no_groups_whose_threads_starve_other_ranks():
    assert launch(groups_left, 5 * [([1], 1, 1)], world_size=4) == 4 * [(5, 1)]


def ranks_with_a_mesh_when_a_group_ends(folder):
    def slower_on_rank_3(*case):
        options = halves(*case)
        time.sleep(0.5 if dist.get_rank() == 3 else 0)  # as if it were still connecting
        (folder / str(dist.get_rank())).touch()
        return options

    counted, end = [], dist.destroy_process_group
    dist.destroy_process_group = lambda group: (counted.append(len(list(folder.iterdir()))), end(group))
    strategies._chosen(slower_on_rank_3, [([1], 1, 1)])
    return counted


def test_a_mesh_that_was_looked_at_ends_when_the_slowest_rank_has_it(tmp_path):
    assert launch(ranks_with_a_mesh_when_a_group_ends, tmp_path, world_size=4) == 4 * [[4, 4]]
