"""The checks of Lab 03: the solved lab's own answers are right, the usual wrong ones get a hint."""

import os

import pytest
import solved
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from solved import WRONG, hang
from torch import nn
from torch.distributed.checkpoint import state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from allranks import check, memory
from allranks.check import labs

ANSWERS = solved.answers("fsdp")
TASKS = {
    "wrap": ("wrap",),
    "held": ("held",),
    "strategy": ("strategy",),
    "precision": ("policies", "in_fp32"),
    "clip": ("clip",),
    "full_state": ("full_state",),
    "checkpoint": ("save", "load"),
}
SOLVED = ("wrap", "held", "strategy", "policies", "in_fp32", "clip", "full_state", "save", "load")


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """What is slow on a busy machine is not stuck."""
    monkeypatch.setattr(labs, "SECONDS", 60.0)


def verdict(capfd, task, *answers):
    return solved.verdict(capfd, getattr(check.lab_03, task), *answers)


def test_the_solved_lab_reaches_its_milestone(capfd, nothing_is_left_behind):
    """The milestone checks every task before it runs them together."""
    check.lab_03.milestone(*(ANSWERS[name] for name in SOLVED))
    printed, said = capfd.readouterr()
    assert said == ""
    assert "✗" not in printed
    assert printed.count("✓") == 8
    assert "Milestone reached" in printed


def test_a_milestone_without_answers_is_not_reached(capfd):
    check.lab_03.milestone(*(None for _ in SOLVED))
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "✗ units from the inside out"
    assert lines[-1] == "0 of 7 tasks are solved."


def spoil(*given, **__):
    for one in given:
        if isinstance(one, nn.Module):
            for p in one.parameters():
                p.detach().zero_()
        elif isinstance(one, list):
            one.clear()
    return given[0] if given else None


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("answer", [*WRONG, spoil])
def test_what_does_nothing_or_harm_is_wrong(capfd, task, answer, nothing_is_left_behind):
    assert verdict(capfd, task, *(answer for _ in TASKS[task]))[0] == "✗"


@pytest.mark.parametrize("task", TASKS)
def test_what_hangs_is_ended(capfd, monkeypatch, task, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 3.0)
    assert "still running after 3 s" in verdict(capfd, task, *(hang for _ in TASKS[task]))


def outside_in(model, kinds, last=None, **options):
    for module in model.modules():
        if isinstance(module, kinds):
            fully_shard(module, **options)
    fully_shard(model, **options | (last or {}))


def one_unit(model, kinds, last=None, **options):
    fully_shard(model, **options | (last or {}))


def without_the_model(model, kinds, last=None, **options):
    for module in model.modules():
        if isinstance(module, kinds):
            fully_shard(module, **options)


def everything(model, kinds, last=None, **options):
    for module in reversed(list(model.modules())[1:]):
        if not isinstance(module, nn.ModuleList):
            fully_shard(module, **options)
    fully_shard(model, **options | (last or {}))


def without_options(model, kinds, last=None, mesh=None, **options):
    ANSWERS["wrap"](model, kinds, last, mesh=mesh)


def without_last(model, kinds, last=None, **options):
    ANSWERS["wrap"](model, kinds, **options)


@pytest.mark.parametrize(
    "answer, hint",
    [
        (outside_in, "go from the inside out"),
        (one_unit, "1 units in place of 3"),
        (without_the_model, "The model itself has to be given"),
        (everything, "is not of these kinds"),
        (without_options, "The options were not handed"),
        (without_last, "`last` is for the last call only"),
    ],
)
def test_wrong_units(capfd, answer, hint):
    assert hint in verdict(capfd, "wrap", answer)


def measured(nbytes, steps=False):
    def held(model, optimizer):
        weights = list(model.parameters())
        states = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
        states = [t for t in states if t.dim() or steps]
        gradients = [p.grad for p in weights if p.grad is not None]
        return tuple(sum(map(nbytes, tensors)) for tensors in (weights, gradients, states))

    return held


def local(t):
    return getattr(t, "to_local", lambda: t)().nbytes


def by_formula(model, optimizer):
    Ψ = sum(p.numel() for p in model.parameters())
    sharded = hasattr(next(model.parameters()), "to_local")
    return tuple(memory.zero_states(Ψ, dist.get_world_size(), 3 if sharded else 0, "fp32"))


def always_with_gradients(model, optimizer):
    return sum(p.grad.nbytes for p in model.parameters()), 0, 0


@pytest.mark.parametrize(
    "answer, hint",
    [
        (measured(lambda t: t.nbytes), "the shape of a DTensor is the global one"),
        (measured(local, steps=True), "Adam's counter of steps"),
        (measured(lambda t: 4 * (local(t) // t.element_size())), "for weights, and holds"),
        (by_formula, "for gradients, and holds 0"),
        (always_with_gradients, "raised AttributeError"),
        (lambda *_: (1.0, 2, 3), "not whole bytes"),
    ],
)
def test_wrong_bytes(capfd, answer, hint):
    assert hint in verdict(capfd, "held", answer)


def chosen(choose, axes=("replicate", "shard")):
    def strategy(layers, rest, budget, device):
        p = dist.get_world_size()
        shards, reshard = choose(p, layers, rest, budget)
        mesh = init_device_mesh(device.type, (p // shards, shards), mesh_dim_names=axes)
        return {"mesh": mesh, "reshard_after_forward": reshard}

    return strategy


def turned(layers, rest, budget, device):
    options = ANSWERS["strategy"](layers, rest, budget, device)
    replicas, shards = options["mesh"].shape
    options["mesh"] = init_device_mesh(device.type, (shards, replicas), mesh_dim_names=("a", "b"))
    return options


def resharded(layers, rest, budget, device):
    options = ANSWERS["strategy"](layers, rest, budget, device)
    return options | {"reshard_after_forward": options["reshard_after_forward"] is None}


def states_only(p, layers, rest, budget):
    return next(s for s in range(2, p + 1) if p % s == 0 and 16 * (sum(layers) + rest) / s <= budget), False


@pytest.mark.parametrize(
    "answer, hint",
    [
        (chosen(lambda p, *_: (p, None)), "Ψ are enough"),
        (chosen(lambda p, *_: (p, False)), "2 are enough"),
        (chosen(lambda p, *_: (2, False)), "needs"),
        (chosen(lambda p, *_: (1, False)), "DDP does that"),
        (chosen(states_only), "needs"),
        (turned, "turned around"),
        (resharded, "reshard_after_forward is True"),
        (lambda *_: (2, 2), "options of fully_shard"),
    ],
)
def test_wrong_strategies(capfd, answer, hint):
    assert hint in verdict(capfd, "strategy", answer)


def only_compute(compute, reduce):
    return MixedPrecisionPolicy(param_dtype=compute), MixedPrecisionPolicy(
        param_dtype=compute, output_dtype=torch.float32
    )


def outputs_everywhere(compute, reduce):
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce, output_dtype=torch.float32)
    return policy, policy


def no_outputs(compute, reduce):
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce)
    return policy, policy


def last_in_fp32(compute, reduce):
    return ANSWERS["policies"](compute, reduce)[0], MixedPrecisionPolicy(output_dtype=torch.float32)


def bf16(compute, reduce):
    return ANSWERS["policies"](torch.bfloat16, torch.float32)


@pytest.mark.parametrize(
    "answer, hint",
    [
        (only_compute, "summed in 2 bytes each"),
        (outputs_everywhere, "output_dtype for the last"),
        (no_outputs, "the logits come out in bfloat16"),
        (last_in_fp32, "param_dtype is for both units"),
        (bf16, "a layer computes in bfloat16"),
        (lambda *_: MixedPrecisionPolicy(), "two policies"),
    ],
)
def test_wrong_policies(capfd, answer, hint):
    assert hint in verdict(capfd, "precision", answer, ANSWERS["in_fp32"])


@pytest.mark.parametrize(
    "places, hint",
    [
        ({"shards", "logits", "gradients", "moments", "norms"}, "There is no autocast"),
        ({"logits", "gradients", "moments"}, "The shards are in fp32"),
        ({"shards", "logits", "moments"}, "The gradients are in fp32"),
        ({"weights"}, "'weights' is not among the places"),
    ],
)
def test_wrong_predictions(capfd, places, hint):
    assert hint in verdict(capfd, "precision", ANSWERS["policies"], lambda: places)


def clipped(norm_of, scale=min):
    def clip(model, max_norm):
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        norm = norm_of(gradients)
        for g in gradients:
            g.to_local().mul_(scale(1.0, max_norm / norm))
        return norm

    return clip


def square(gradients):
    return sum(g.to_local().square().sum() for g in gradients)


def alone(gradients):
    return square(gradients).sqrt().item()


def over_all_ranks(gradients):
    total = square(gradients)
    dist.all_reduce(total)
    return total.sqrt().item()


def sum_of_norms(gradients):
    total = square(gradients).sqrt()
    dist.all_reduce(total)
    return total.item()


def one_by_one(gradients):
    mesh, total = gradients[0].device_mesh, 0.0
    for g in gradients:
        part = square([g])
        dist.all_reduce(part, group=mesh.get_group(mesh.ndim - 1))
        total += part.item()
    return total**0.5


def with_frozen_ones(model, max_norm):
    return clipped(over_all_ranks)(model, max_norm) if model.position.weight.grad.any() else 0.0


def norm_only(model, max_norm):
    return one_by_one([p.grad for p in model.parameters() if p.grad is not None])


def by_torch(model, max_norm):
    return nn.utils.clip_grad_norm_(model.parameters(), max_norm).full_tensor().item()


def as_dtensor(model, max_norm):
    return nn.utils.clip_grad_norm_(model.parameters(), max_norm)


@pytest.mark.parametrize(
    "answer, hint",
    [
        (clipped(alone), "a rank alone knows the norm of its shards"),
        (clipped(over_all_ranks), "√2 times"),
        (clipped(sum_of_norms), "the gradients of one process have norm"),
        (clipped(one_by_one), "one sum of one number is enough"),
        (clipped(one_by_one, max), "afterwards"),
        (with_frozen_ones, "raised AttributeError"),
        (norm_only, "afterwards"),
        (as_dtensor, "and not the norm, a float"),
    ],
)
def test_wrong_clipping(capfd, answer, hint):
    assert hint in verdict(capfd, "clip", answer)


def test_clipping_by_torch_is_right(capfd):
    assert verdict(capfd, "clip", by_torch)[0] == "✓"


def by_hand(model, ranks=(0,), prefix=""):
    whole = {prefix + name: p.detach().full_tensor().cpu() for name, p in model.named_parameters()}
    return whole if dist.get_rank() in ranks else {}


def on_one_rank(model):
    return by_hand(model) if dist.get_rank() == 0 else {}


def wrapped_names(model):
    return by_hand(model, prefix="module.")


def everywhere(model):
    return by_hand(model, ranks=range(8))


def local_parts(model):
    return {n: p.to_local().detach() for n, p in model.named_parameters()} if dist.get_rank() == 0 else {}


def only_on_rank_0(model):
    return by_hand(model) or None


@pytest.mark.parametrize(
    "answer, hint",
    [
        (lambda model: model.state_dict(), "returned DTensors"),
        (everywhere, "on eight ranks of a server, eight models"),
        (wrapped_names, "lacks"),
        (local_parts, "is not the whole weight"),
        (lambda model: None, "Rank 0 returned None: the line is missing that returns the state dict"),
        (only_on_rank_0, "Rank 1 returned None: the line is missing that returns an empty dict"),
        (lambda model: 3, "Rank 0 returned a int, and not a state dict"),
        (lambda model: {"head.weight": None}, "a dict with a None in it, and not a state dict"),
    ],
)
def test_wrong_state_dicts(capfd, answer, hint):
    assert hint in verdict(capfd, "full_state", answer)


def test_a_state_dict_made_by_hand_is_right(capfd):
    assert verdict(capfd, "full_state", by_hand)[0] == "✓"


def test_one_rank_alone_cannot_gather(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 5.0)
    assert "did not come to its end" in verdict(capfd, "full_state", on_one_rank)


def load_weights_only(folder, model, optimizer):
    parts = {"model": state_dict.get_model_state_dict(model), "step": 0}
    dcp.load(parts, checkpoint_id=folder)
    return parts["step"]


def load_optimizer_only(folder, model, optimizer):
    parts = {"step": 0}
    dcp.load(parts, checkpoint_id=folder)
    return parts["step"]


def load_without_step(folder, model, optimizer):
    ANSWERS["load"](folder, model, optimizer)


def optimizer_as_it_is(folder, model, optimizer, step):
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    dcp.save(parts, checkpoint_id=folder)


def load_optimizer_as_it_is(folder, model, optimizer):
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 0}
    dcp.load(parts, checkpoint_id=folder)
    model.load_state_dict(parts["model"])
    optimizer.load_state_dict(parts["optimizer"])
    return parts["step"]


def on_rank_0(folder, model, optimizer, step):
    options = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, states = state_dict.get_state_dict(model, optimizer, options=options)
    if dist.get_rank() == 0:
        os.makedirs(folder, exist_ok=True)
        torch.save({"model": weights, "optimizer": states, "step": step}, os.path.join(folder, "all.pt"))


def save_and_spoil(folder, model, optimizer, step):
    ANSWERS["save"](folder, model, optimizer, step)
    for p in model.parameters():
        p.detach().to_local().mul_(0.9)


@pytest.mark.parametrize(
    "save, load, hint",
    [
        ("save", load_weights_only, "the optimizer's states are not"),
        ("save", load_optimizer_only, "the weights are not those that were saved"),
        ("save", load_without_step, "load returned None on rank 0, and 2 was saved"),
        (on_rank_0, "load", "each has to write its own shards"),
        (optimizer_as_it_is, load_optimizer_as_it_is, "the optimizer's states are not"),
        (save_and_spoil, "load", "The training that goes on after saving"),
    ],
)
def test_wrong_checkpoints(capfd, save, load, hint):
    answers = (ANSWERS.get(one, one) if isinstance(one, str) else one for one in (save, load))
    assert hint in verdict(capfd, "checkpoint", *answers)
