"""Muon is torch's, and ranks that hold rows take the same step to the last bit."""

import pytest
import torch
import torch.distributed as dist

from allranks import launch, muon
from allranks.parallel.muon import GatheredMuon, Muon, OwnedMuon, Rows, orthonormalise
from allranks.trace import trace

SHAPES = [(8, 8), (16, 8), (8, 24), (24, 8), (8, 8)]


def problem():
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in SHAPES], [[torch.randn(s) for s in SHAPES] for _ in range(3)]


def serial(make, **options):
    weights, gradients = problem()
    optimizer = make(weights, lr=0.1, **options)
    for step in gradients:
        for w, g in zip(weights, step, strict=True):
            w.grad = g.clone()
        optimizer.step()
    return weights


def on_rows(make, **options):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    weights, gradients = problem()
    parts = [w.chunk(ranks)[rank].clone() for w in weights]
    optimizer = make(parts, lr=0.1, **options)
    for step in gradients:
        for part, g in zip(parts, step, strict=True):
            part.grad = g.chunk(ranks)[rank].clone()
        with trace() as counted:
            optimizer.step()
    return parts, counted.sent


def together(ranks):
    return [torch.cat(parts) for parts in zip(*(parts for parts, _ in ranks), strict=True)]


def test_muon_is_torchs():
    assert all(map(torch.equal, serial(Muon), serial(torch.optim.Muon)))


def test_singular_values_above_two_thousandths_end_between_a_half_and_three_halves():
    torch.manual_seed(0)
    left, right = torch.linalg.qr(torch.randn(24, 24)).Q, torch.linalg.qr(torch.randn(40, 24)).Q
    values = torch.logspace(0, -5, 24)
    found = orthonormalise((left * values) @ right.T).float()
    stretched = (left.T @ found @ right).diag()
    seen = values / values.norm() > 2e-3
    assert stretched[seen].min() > 0.5 and stretched.max() < 1.5
    assert stretched[-1].abs() < 0.5


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("make", [GatheredMuon, OwnedMuon])
def test_rows_take_the_step_of_one_process(make, world_size):
    ranks = launch(on_rows, make, world_size=world_size)
    assert all(map(torch.equal, together(ranks), serial(torch.optim.Muon)))


@pytest.mark.parametrize("owners", [[0, 0, 0, 0, 0], [1, 0, 1, 0, 0]])
def test_any_owners_are_right(owners):
    ranks = launch(on_rows, OwnedMuon, owners=owners, world_size=2)
    assert all(map(torch.equal, together(ranks), serial(torch.optim.Muon)))


def test_rows_alone_take_another_step():
    ranks = launch(on_rows, Muon, world_size=2)
    assert not any(map(torch.allclose, together(ranks), serial(torch.optim.Muon)))


def test_the_bytes_are_those_of_the_arithmetic():
    sizes = [rows * columns for rows, columns in SHAPES]
    for world_size in (2, 4):
        gathered = [sent for _, sent in launch(on_rows, GatheredMuon, world_size=world_size)]
        assert set(gathered) == {muon.gather_bytes(sizes, [world_size] * len(sizes), world_size)}
        owned = [sent for _, sent in launch(on_rows, OwnedMuon, world_size=world_size)]
        assert sum(owned) / world_size == pytest.approx(muon.owner_bytes(sum(sizes), world_size))


def test_rows_average_gradients_and_give_the_weights_back():
    def on_rank():
        weights, _ = problem()
        rows = Rows(weights)
        for w in weights:
            w.grad = torch.full_like(w, dist.get_rank())
        rows.before_step()
        with torch.no_grad():
            for part in rows.parts:
                part.sub_(part.grad)
        rows.after_step()
        return weights

    for weights in launch(on_rank, world_size=2):
        for w, start in zip(weights, problem()[0], strict=True):
            torch.testing.assert_close(w, start - 0.5)
