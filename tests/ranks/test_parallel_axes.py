"""Five axes in one program: the gradients, and their norm, of one process."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from allranks import launch
from allranks.lowering import lower
from allranks.model import GPT, digits
from allranks.parallel import axes, tensor
from allranks.parallel.experts import Mixture, MixtureLayer
from allranks.schedules import one_f_one_b
from allranks.topology import groups as groups_along
from allranks.trace import trace


def new_model():
    torch.manual_seed(0)
    model = GPT(layers=2, hidden=32)
    layers = [MixtureLayer(layer, Mixture(32, 16, 4, factor=4)) for layer in model.layers]
    model.layers = nn.ModuleList(layers)
    return model


def batch():
    tokens = digits()[:4]
    targets = tokens[:, 1:].clone()
    for i, row in enumerate(targets):
        row[30 + 8 * i :] = axes.IGNORED
    return tokens[:, :-1], targets


def on_mesh(sizes, fold, expected):
    groups = axes.Groups(sizes)
    program = lower(one_f_one_b(sizes["pp"], 2)).steps
    run, part = axes.build(new_model(), groups, fold, program, 4, 2)
    dp = groups["dp"]
    with trace() as counted:
        loss = run(*(t.chunk(dp.size())[dist.get_rank(dp)] for t in batch()))
        axes.sum_gradients(part, groups, fold)
    for axis in ("pp", "dp", "cp"):
        loss = tensor.total(loss, groups[axis])
    wrong = axes.wrong_gradients(part, expected, groups, fold)
    norm = axes.gradient_norm(part, groups, fold).item()
    dist.barrier()
    assert sum(counted.sent_by_group.values()) == pytest.approx(counted.sent)
    assert {name for name, _ in counted.sent_by_group} <= {group.group_name for group in groups.made.values()}
    return loss.item(), norm, wrong


@pytest.mark.parametrize(
    "sizes, fold",
    [
        ({"pp": 1, "dp": 2, "cp": 1, "tp": 2}, ("dp", "tp")),
        ({"pp": 1, "dp": 1, "cp": 2, "tp": 2}, ("tp",)),
        ({"pp": 2, "dp": 2, "cp": 1, "tp": 1}, ("dp",)),
    ],
)
def test_a_mesh_has_the_loss_the_gradients_and_the_norm_of_one_process(sizes, fold):
    model, (inputs, targets) = new_model(), batch()
    loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    norm = torch.cat([g.flatten() for g in expected.values()]).norm().item()
    for found in launch(on_mesh, sizes, fold, expected, world_size=4):
        assert found == (pytest.approx(loss.item(), rel=1e-5), pytest.approx(norm, rel=1e-5), [])


@pytest.mark.parametrize("along", ["tp", "cp", "dp", "pp", ("cp", "tp"), ("dp", "tp"), ("dp", "cp", "tp")])
def test_the_groups_are_those_of_topology(along):
    sizes = {"pp": 2, "dp": 3, "cp": 2, "tp": 4}
    along = (along,) if isinstance(along, str) else along
    found = {tuple(group) for group in axes.members_of(sizes, along)}
    assert found == set(groups_along(tuple(reversed(sizes.items())), along))


def test_an_unknown_axis_is_named():
    with pytest.raises(ValueError, match="the mesh has no axis 'ep'; it has pp, dp"):
        axes.members_of({"pp": 2, "dp": 2}, ("ep",))


def wrong_size():
    axes.Groups({"dp": 4})


def test_a_mesh_of_another_size_is_refused():
    with pytest.raises(Exception, match="does not have the 2 ranks"):
        launch(wrong_size, world_size=2)


def test_a_gradient_is_summed_over_the_axes_that_do_not_cut():
    assert axes.summed_over(()) == ("dp", "cp", "tp")
    assert axes.summed_over(("cp", "tp")) == ("dp",)
