"""LAMB is the library's, and on slices it is LAMB only if lengths are those of whole tensors."""

from functools import partial

import pytest
import pytorch_optimizer
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from allranks import launch
from allranks.model import GPT, digits, loss_of
from allranks.parallel import zero
from allranks.parallel.lamb import Lamb, SlicedLamb, pieces
from allranks.trace import trace


def new_model():
    torch.manual_seed(0)
    model = GPT(layers=1, hidden=16, heads=2)
    with torch.no_grad():
        model.position.weight.mul_(3)  # longer than 10, where LAMB counts no further
        model.layers[0].up.bias.zero_()
    return model


BATCHES = digits()[:36].split(12)


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def serial(make_optimizer):
    model = new_model()
    optimizer = make_optimizer(model.parameters())
    for batch in BATCHES:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    return flat(model)


def off(found, expected):
    return ((found - expected).norm() / (expected - flat(new_model())).norm()).item()


THEIRS = partial(pytorch_optimizer.Lamb, lr=0.01, weight_decouple=False, adam_debias=True)


def test_it_is_the_librarys():
    ours = serial(partial(Lamb, lr=0.01, decay=0.1))
    assert off(serial(partial(THEIRS, weight_decay=0.1)), ours) < 1e-3


def test_without_decay_only_the_key_bias_differs_whose_gradient_is_rounding():
    # Softmax ignores what is added to all scores of a query, so the true gradient of this bias is 0, and a
    # trust ratio gives the rounding errors a step of full length.
    is_key_bias = torch.cat(
        [torch.full((p.numel(),), name.endswith("key.bias")) for name, p in new_model().named_parameters()]
    )
    ours, theirs = serial(partial(Lamb, lr=0.01)), serial(THEIRS)
    torch.testing.assert_close(ours[~is_key_bias], theirs[~is_key_bias], rtol=1e-3, atol=1e-5)
    moved = (ours - flat(new_model()))[is_key_bias].norm() / flat(new_model())[is_key_bias].norm()
    assert moved > 0.005


def test_the_librarys_default_has_a_first_step_ten_times_as_long():
    def first_step(make):
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = make([p], lr=0.01)
        p.grad = torch.ones(3)
        optimizer.step()
        return (1 - p).norm().item()

    assert first_step(pytorch_optimizer.Lamb) == pytest.approx(10 * first_step(Lamb), rel=1e-3)


def on_slices(optimizer_class, cut):
    model = new_model()
    parameters = list(model.parameters())
    (unit,) = zero.shard(zero.Zero1, [model])
    mine, gradients = cut(unit.mine, parameters), cut(zero.my_slice(unit.gradients), parameters)
    optimizer = optimizer_class(mine, lr=0.01, decay=0.1)
    for batch in BATCHES:
        loss_of(model, batch.chunk(dist.get_world_size())[dist.get_rank()]).backward()
        unit.before_step()
        for p, gradient in zip(mine, gradients, strict=True):
            p.grad = gradient
        with trace() as counted:
            optimizer.step()
        unit.after_step()
    dist.barrier()
    return flat(model), counted.calls, counted.bytes, len(parameters)


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_on_slices_it_is_the_serial_one_for_one_small_all_reduce(world_size):
    expected = serial(partial(Lamb, lr=0.01, decay=0.1))
    for found, calls, nbytes, tensors in launch(on_slices, SlicedLamb, pieces, world_size=world_size):
        assert off(found, expected) < 1e-3
        assert dict(calls) == {"all_reduce": 1}
        assert nbytes["all_reduce"] == 2 * tensors * 4


def test_a_slice_that_is_treated_as_a_layer_is_another_optimizer():
    expected = serial(partial(Lamb, lr=0.01, decay=0.1))
    found, *_ = launch(on_slices, Lamb, lambda mine, parameters: [mine], world_size=3)[0]
    assert off(found, expected) > 0.1


def test_pieces_are_all_elements_once_and_in_order():
    def on_rank(sizes):
        parameters = [torch.empty(n) for n in sizes]
        total = sum(sizes)
        padded = torch.arange(total + -total % dist.get_world_size())
        return [p.tolist() for p in pieces(zero.my_slice(padded), parameters)]

    for sizes in ([1], [5, 1, 1, 9], [2, 2, 2]):
        ranks = launch(on_rank, sizes, world_size=4)
        joined = [[x for rank in ranks for x in rank[k]] for k in range(len(sizes))]
        assert [x for tensor in joined for x in tensor] == list(range(sum(sizes)))
        assert [len(tensor) for tensor in joined] == sizes


def on_fsdp():
    model = new_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = Lamb(model.parameters(), lr=0.01, decay=0.1)
    for batch in BATCHES:
        optimizer.zero_grad()
        loss_of(model, batch.chunk(dist.get_world_size())[dist.get_rank()]).backward()
        optimizer.step()
    return torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])


def test_under_fsdp2_it_is_the_serial_one_as_it_stands():
    expected = serial(partial(Lamb, lr=0.01, decay=0.1))
    for found in launch(on_fsdp, world_size=2):
        assert off(found, expected) < 1e-3
