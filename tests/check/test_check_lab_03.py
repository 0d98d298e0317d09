"""The checks of Lab 03: the solved lab's own answers are right, the usual wrong ones get a hint."""

import os

import pytest
import solved
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from solved import hang
from together import assert_verdicts, assert_wrong
from torch import nn
from torch.distributed.checkpoint import state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.utils import get_total_norm as total_norm
from verdicts import verdict as verdict_of

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
    return verdict_of(capfd, getattr(check.lab_03, task), *answers)


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


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_what_does_nothing_or_harm_is_wrong():
    assert_wrong(check.lab_03, TASKS, spoil)


def test_what_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 3.0)
    assert "still running after 3 s" in verdict(capfd, "wrap", hang)


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


def last_everywhere(model, kinds, last=None, **options):
    ANSWERS["wrap"](model, kinds, None, **options | (last or {}))


def without_last(model, kinds, last=None, **options):
    ANSWERS["wrap"](model, kinds, **options)


def test_wrong_units():
    cases = [
        (outside_in, "go from the inside out"),
        (one_unit, "1 units instead of 3"),
        (without_the_model, "the model itself is not a unit; pass it"),
        (everything, "is a unit, but not of these kinds"),
        (without_options, "the options did not arrive"),
        (last_everywhere, "`last` overrode them everywhere"),
        (without_last, "`last` for the last call only"),
    ]
    assert_verdicts(check.lab_03.wrap, [((answer,), hint) for answer, hint in cases])


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


def by_formula_later_too(model, optimizer):
    weights, gradients, states = by_formula(model, optimizer)
    trained = any(p.grad is not None for p in model.parameters())
    counted = any(torch.is_tensor(t) and t.dim() for s in optimizer.state.values() for t in s.values())
    size = next(model.parameters()).element_size()
    parts = (weights, trained * gradients, counted * states)
    return tuple(part * size // 4 for part in parts)


def always_with_gradients(model, optimizer):
    return sum(p.grad.nbytes for p in model.parameters()), 0, 0


@pytest.mark.stamped("lab 03")
def test_wrong_bytes():
    cases = [
        (measured(lambda t: t.nbytes), "the shape of a DTensor is the global one"),
        (measured(local, steps=True), "Adam's step counter"),
        (measured(lambda t: 4 * (local(t) // t.element_size())), "for weights, but holds"),
        (by_formula, "for gradients, but holds 0"),
        (by_formula_later_too, "With frozen position embeddings"),
        (always_with_gradients, "raised AttributeError"),
        (lambda *_: (1.0, 2, 3), "for weights; expected an int"),
    ]
    assert_verdicts(check.lab_03.held, [((answer,), hint) for answer, hint in cases])


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


def by_a_table(kept_rest, dropped_rest):
    """Choose by other formulas: of the gathered weights and gradients, when kept and when dropped."""

    def choose(p, layers, rest, budget):
        Ψ, largest = sum(layers) + rest, max(layers)
        for reshard, whole in ((False, kept_rest(Ψ, largest, rest)), (None, dropped_rest(Ψ, largest, rest))):
            for s in (s for s in range(2, p + 1) if p % s == 0):
                if 16 * Ψ / s + whole <= budget:
                    return s, reshard
        return p, None

    return choose


def kept(Ψ, largest, rest):
    return 4 * Ψ + 4 * largest


def dropped(Ψ, largest, rest):
    return 4 * rest + 12 * largest


def states_only(p, layers, rest, budget):
    return next(s for s in range(2, p + 1) if p % s == 0 and 16 * (sum(layers) + rest) / s <= budget), False


@pytest.mark.stamped("lab 03")
def test_wrong_strategies():
    cases = [
        (chosen(lambda p, *_: (p, None)), "Ψ are enough"),
        (chosen(lambda p, *_: (p, False)), "2 are enough"),
        (chosen(lambda p, *_: (2, False)), "needs"),
        (chosen(lambda p, *_: (1, False)), "one shard is DDP"),
        (chosen(states_only), "needs"),
        (chosen(by_a_table(kept, dropped)), "✓"),
        (chosen(by_a_table(lambda Ψ, largest, rest: 4 * Ψ, dropped)), "does not fit: it needs"),
        (chosen(by_a_table(kept, lambda Ψ, largest, rest: 12 * largest)), "does not fit: it needs"),
        (chosen(by_a_table(kept, lambda Ψ, largest, rest: 4 * rest + 8 * largest)), "does not fit: it needs"),
        (chosen(by_a_table(lambda Ψ, largest, rest: 4 * Ψ + 12 * largest, dropped)), "are enough"),
        (turned, "the second axis shards"),
        (resharded, "reshard_after_forward is True"),
        (lambda *_: (2, 2), "expected a dict of options of fully_shard"),
    ]
    assert_verdicts(check.lab_03.strategy, [((answer,), hint) for answer, hint in cases])


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


@pytest.mark.stamped("lab 03")
def test_wrong_policies():
    cases = [
        (only_compute, "summed in 2 bytes each"),
        (outputs_everywhere, "only the last an output_dtype"),
        (no_outputs, "the logits are in bfloat16"),
        (last_in_fp32, "both units need the param_dtype"),
        (bf16, "a layer computes in bfloat16"),
        (lambda *_: MixedPrecisionPolicy(), "expected two policies"),
    ]
    assert_verdicts(
        check.lab_03.precision,
        [
            (
                (
                    answer,
                    ANSWERS["in_fp32"],
                ),
                hint,
            )
            for answer, hint in cases
        ],
    )


@pytest.mark.stamped("lab 03")
def test_wrong_predictions():
    cases = [
        ({"shards", "logits", "gradients", "moments", "norms"}, "There is no autocast"),
        ({"logits", "gradients", "moments"}, "The shards are in fp32"),
        ({"shards", "logits", "moments"}, "The gradients are in fp32"),
        ({"weights"}, "'weights' is not one of the six names"),
    ]
    assert_verdicts(
        check.lab_03.precision,
        [
            (
                (
                    ANSWERS["policies"],
                    lambda places=places: places,
                ),
                hint,
            )
            for places, hint in cases
        ],
    )


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


def divides_by_the_norm(model, max_norm):
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    total, mesh = square(gradients), gradients[0].device_mesh
    dist.all_reduce(total, group=mesh.get_group(mesh.ndim - 1))
    norm = total.sqrt().item()
    for g in gradients:
        g.to_local().mul_(min(1.0, max_norm / norm))
    return norm


def by_torch(model, max_norm):
    return nn.utils.clip_grad_norm_(model.parameters(), max_norm).full_tensor().item()


def by_torch_s_norm(model, max_norm):
    return clipped(lambda gradients: total_norm(gradients).full_tensor().item())(model, max_norm)


def as_dtensor(model, max_norm):
    return nn.utils.clip_grad_norm_(model.parameters(), max_norm)


@pytest.mark.stamped("lab 03")
def test_wrong_clipping():
    cases = [
        (clipped(alone), "A rank by itself knows only the norm of its shards"),
        (clipped(over_all_ranks), "√2 times"),
        (clipped(sum_of_norms), "the norm in one process"),
        (clipped(one_by_one), "one sum of one number is enough"),
        (clipped(one_by_one, max), "should have norm"),
        (with_frozen_ones, "raised AttributeError"),
        (norm_only, "should have norm"),
        (divides_by_the_norm, "raised ZeroDivisionError"),
        (as_dtensor, "called torch's clip_grad_norm_"),
        (by_torch, "called torch's clip_grad_norm_"),
        (by_torch_s_norm, "called torch's get_total_norm"),
    ]
    assert_verdicts(check.lab_03.clip, [((answer,), hint) for answer, hint in cases])


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


@pytest.mark.stamped("lab 03")
def test_wrong_state_dicts():
    cases = [
        (by_hand, "✓"),
        (lambda model: model.state_dict(), "returned DTensors"),
        (everywhere, "with eight ranks that makes eight models"),
        (wrapped_names, "lacks"),
        (local_parts, "is not the whole weight"),
        (lambda model: None, "Rank 0 returned None; it should return the state dict"),
        (only_on_rank_0, "Rank 1 returned None; it should return an empty dict"),
        (lambda model: 3, "Rank 0 returned an object of type int; expected a state dict"),
        (lambda model: {"head.weight": None}, "a dict that contains None; expected a state dict"),
    ]
    assert_verdicts(check.lab_03.full_state, [((answer,), hint) for answer, hint in cases])


def test_one_rank_alone_cannot_gather(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 5.0)
    assert "did not finish" in verdict(capfd, "full_state", on_one_rank)


def load_weights_only(folder, model, optimizer):
    parts = {"model": state_dict.get_model_state_dict(model), "step": 0}
    dcp.load(parts, checkpoint_id=folder)
    return parts["step"]


def load_optimizer_only(folder, model, optimizer):
    parts = {"step": 0}
    dcp.load(parts, checkpoint_id=folder)
    return parts["step"]


def load_in_place(folder, model, optimizer):
    weights, states = state_dict.get_state_dict(model, optimizer)
    parts = {"model": weights, "optimizer": states, "step": 0}
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


@pytest.mark.stamped("lab 03")
def test_wrong_checkpoints():
    cases = [
        ("save", load_weights_only, "the optimizer's states or options are not"),
        ("save", load_optimizer_only, "The weights differ from the saved ones"),
        ("save", load_in_place, "the optimizer's states or options are not"),
        ("save", load_without_step, "load returned None on rank 0; expected the saved step, 2"),
        (on_rank_0, "load", "each rank should write its own shards"),
        (optimizer_as_it_is, load_optimizer_as_it_is, "the optimizer's states or options are not"),
        (save_and_spoil, "load", "Training that continues after saving"),
    ]
    assert_verdicts(
        check.lab_03.checkpoint,
        [((ANSWERS.get(save, save), ANSWERS.get(load, load)), hint) for save, load, hint in cases],
    )
