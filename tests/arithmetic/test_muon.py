"""What Muon costs on shards is what was published, what torch counts, and what collectives send."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from allranks import collectives, muon
from allranks.parallel.muon import orthonormalise


@pytest.mark.parametrize("shape", [(8, 8), (8, 24), (40, 8)])
def test_newton_schulz_flops_are_those_torch_counts(shape):
    with FlopCounterMode(display=False) as counted:
        orthonormalise(torch.randn(shape))
    assert counted.get_total_flops() == muon.newton_schulz_flops(*shape)


@pytest.mark.parametrize("dimension, tokens, printed", [(768, 524_288, 0.7), (16_384, 16_000_000, 0.5)])
def test_the_overhead_is_the_published_one(dimension, tokens, printed):
    assert round(100 * muon.overhead(dimension, tokens), 1) == printed  # Jordan et al. 2024, runtime analysis


def test_a_square_matrix_costs_the_overhead_and_others_less():
    m, tokens = 64, 4096
    for n in (m, 4 * m):
        share = muon.newton_schulz_flops(m, n) / (6 * m * n * tokens)
        assert share <= muon.overhead(m, tokens) and (share == muon.overhead(m, tokens)) == (n == m)


@pytest.mark.parametrize("world_size", [2, 4, 64])
def test_a_gather_of_rows_is_a_quarter_of_adamw_and_owners_send_less(world_size):
    sizes = [300, 500, 700]
    adamw = muon.adamw_bytes(sum(sizes), world_size)
    gather = muon.gather_bytes(sizes, [world_size] * 3, world_size)
    assert gather == pytest.approx(collectives.ring_all_gather_bytes(2 * sum(sizes), world_size))
    assert (adamw + gather) / adamw == pytest.approx(1.25)  # Liu et al. 2025, section 2.3
    owned = muon.owner_bytes(sum(sizes), world_size)
    assert owned == pytest.approx(gather * 2 / world_size)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 9))
def test_pieces_are_counted_as_if_each_element_knew_its_rank(sizes, world_size):
    length = -(-sum(sizes) // world_size)
    ranks = [k // length for k in range(sum(sizes))]
    start = 0
    for size, holders in zip(sizes, muon.pieces(sizes, world_size), strict=True):
        assert holders == len(set(ranks[start : start + size]))
        start += size


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(2, 9))
def test_flat_slices_send_at_most_what_rows_send(sizes, world_size):
    flat = muon.gather_bytes(sizes, muon.pieces(sizes, world_size), world_size)
    assert flat <= muon.gather_bytes(sizes, [world_size] * len(sizes), world_size)


@given(st.lists(st.integers(1, 99), min_size=1, max_size=12), st.integers(1, 5))
def test_no_rank_has_more_than_its_share_and_most_of_one_matrix(costs, world_size):
    loads = [0] * world_size
    for cost, owner in zip(costs, muon.owners(costs, world_size), strict=True):
        loads[owner] += cost
    assert max(loads) <= sum(costs) / world_size + max(costs) * (1 - 1 / world_size)  # Graham 1969
    if len(costs) <= world_size:
        assert max(loads) == max(costs)


def test_muon_keeps_half_of_adamw():
    assert muon.needs("Muon", 30, 50)[0] * 2 == muon.needs("AdamW", 30, 50)[0]
    assert muon.needs("Dion", 30, 50, 5) == (30 * 50 + 50 * 5, 80 * 5)
