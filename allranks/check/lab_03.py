"""The tasks of Lab 03: fully sharded data parallel."""

import os
import tempfile
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from allranks import memory
from allranks.check import exercise, labs
from allranks.check.labs import is_written, on_ranks
from allranks.model import GPT, Layer, digits, loss_of
from allranks.trace import trace

LR, MAX_NORM = 3e-3, 0.7
TAKEN = ("overlapping meshes", "Invariant encountered")  # torch, of a parameter that is in a unit already
PLACES = {
    "shards": "The optimizer writes the shards, and they are what is cast when a unit is gathered.",
    "norms": "There is no autocast: a LayerNorm computes in its unit's param_dtype, as everything does.",
    "layer outputs": "A layer without an output_dtype hands on what it has computed in.",
    "logits": "output_dtype of the last call is theirs.",
    "gradients": "What backward leaves on a rank is in the dtype of its shard, whatever it was summed in.",
    "moments": "Adam makes its moments like the shards.",
}


def _device():
    """The device of the rank that calls."""
    if "nccl" in dist.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _mesh(*shape):
    return init_device_mesh(_device().type, shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])


def _gpt(seed, **sizes):
    torch.manual_seed(seed)
    return GPT(**{"layers": 1, "hidden": 32, "heads": 2} | sizes)


def _tapered(seed, layers=2, hidden=32):
    """A model whose layers differ in size, so that a message tells whose it is."""
    model = _gpt(seed, layers=layers, hidden=hidden)
    for number, layer in enumerate(model.layers):
        width = hidden * (number + 1)
        layer.up, layer.down = nn.Linear(hidden, width), nn.Linear(width, hidden)
    return model


def _shard(model, last=None, **options):
    options = {"mesh": _mesh(dist.get_world_size())} | options
    for layer in model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options | (last or {}))


def _adamw(model):
    """AdamW in one operation: of DTensors, each operation on each shape costs a rank some milliseconds."""
    return torch.optim.AdamW(model.parameters(), lr=LR, fused=True)


def _part(batch):
    return batch.tensor_split(dist.get_world_size())[dist.get_rank()]


def _train(model, optimizer, batches, clip=None):
    """Train on ranks, one step a batch; return the mean losses."""
    losses = []
    for batch in batches:
        loss = loss_of(model, _part(batch))
        optimizer.zero_grad()
        loss.backward()
        if clip:
            clip(model, MAX_NORM)
        optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        losses.append(loss.item())
    return losses


def _serial(model, batches, clip=None):
    """The losses of one process; in the end `model` is trained."""
    optimizer = _adamw(model)
    losses = []
    for batch in batches:
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


def _batches(first, size, steps):
    return list(digits()[first : first + size * steps].split(size))


def _said(answer):
    """What was returned, as it fits into a line."""
    return " ".join(repr(answer).split())[:60]


def _same(losses, expected):
    return all(abs(a / b - 1) < 1e-5 for a, b in zip(losses, expected, strict=True))


def _norm(gradients):
    return nn.utils.get_total_norm([g for g in gradients if g is not None]).item()


def _owner(name, units):
    """The innermost of `units` (names of modules; '' is the model) that the parameter `name` is in."""
    return max((unit for unit in units if not unit or name.startswith(f"{unit}.")), key=len)


def _unit_bytes(model, units, world_size):
    """The bytes of each unit's message, with the padding of weights whose rows cannot be divided."""
    sizes = dict.fromkeys(units, 0)
    for name, p in model.named_parameters():
        rows, row = p.shape[0], p[0].numel()
        sizes[_owner(name, units)] += 4 * world_size * memory.shard_elements(rows, row, world_size, 0)
    return {unit: nbytes for unit, nbytes in sizes.items() if nbytes}


@exercise
def wrap(answer):
    """`answer(model, kinds, last=None, **options)` makes a unit of each module of `kinds`, the model last."""
    is_written(answer)
    tokens = digits()[40:64]

    def on_rank(cases):
        warnings.filterwarnings("ignore", "FSDP2-wrapped module")  # of the view that a Linear returns
        return [tried(*case) for case in cases]

    def tried(kinds, options, last):
        model = _tapered(3).to(_device())
        options = {"mesh": _mesh(dist.get_world_size())} | options
        try:
            answer(model, kinds, last, **options)
        except (TypeError, RuntimeError) as error:
            if any(said in str(error) for said in TAKEN):
                return None
            raise
        units = [name for name, module in model.named_modules() if isinstance(module, FSDPModule)]
        if "" not in units:
            return units, None, None, None
        with trace() as counted:
            loss_of(model, _part(tokens)).backward()
        reduced = [call.nbytes for call in counted.log if call.kind == "reduce_scatter"]
        gradients = {name: p.grad.full_tensor().cpu() for name, p in model.named_parameters()}
        return units, reduced, counted.calls["all_gather"], gradients

    kept = {"reshard_after_forward": False}
    cases = {
        3: [((Layer,), {}, None), ((nn.Linear, Layer), {}, None)],
        2: [((Layer, nn.Embedding), kept, {"reshard_after_forward": True})],
    }
    for world_size in cases:
        found = on_ranks(on_rank, cases[world_size], world_size=world_size)[0]
        for case, result in zip(cases[world_size], found, strict=True):
            units = _are_the_units(world_size, *case, result, tokens)
    return f"Units from the inside out, the model last: {units} units, and a message of gradients for each."


def _are_the_units(world_size, kinds, options, last, result, tokens):
    said = " and ".join(kind.__name__ for kind in kinds)
    assert result, (
        f"With {said} as kinds, a module was given to fully_shard after one that contains it: "
        "a unit takes what is not taken, so go from the inside out."
    )
    units, reduced, gathered, gradients = result
    model = _tapered(3)
    wanted = ["", *(name for name, module in model.named_modules() if isinstance(module, kinds))]
    missing, extra = [u for u in wanted if u not in units], [u for u in units if u not in wanted]
    assert units, f"With {said} as kinds, nothing is a unit: fully_shard was not called."
    assert missing != [""], "The model itself has to be given to fully_shard too, as the last."
    assert not missing, (
        f"With {said} as kinds, there are {len(units)} units in place of {len(wanted)}: "
        f"{missing[-1] or 'the model'} is none."
    )
    assert not extra, f"With {said} as kinds, {extra[0]} is a unit, and is not of these kinds."
    sizes = _unit_bytes(model, wanted, world_size)
    assert sorted(reduced) == sorted(sizes.values()), (
        f"With {said} as kinds, the gradients of {len(sizes)} units are reduced in messages of "
        f"{', '.join(map(str, reduced))} bytes, and not in {', '.join(map(str, sizes.values()))}."
    )
    assert kinds != (Layer,) or reduced == [*sizes.values()][::-1], (
        f"The gradients arrive in messages of {', '.join(map(str, reduced))} bytes: these are the units, "
        "and not from the last layer to the first, with the rest at the end."
    )
    loss_of(model, tokens).backward()
    for name, p in model.named_parameters():
        assert torch.allclose(gradients[name], p.grad, rtol=1e-3, atol=1e-6), (
            f"The gradient of {name} is not that of one process."
        )
    if last:
        once, twice = len(sizes), 2 * len(sizes)
        assert gathered != twice, "The options were not handed to fully_shard."
        assert gathered == once + 1, (
            f"With reshard_after_forward=False for all and True in `last`, {once} units are gathered "
            f"{gathered} times in a step, and not {once + 1}: `last` is for the last call only."
        )
    return len(sizes)


def _states(model, element, world_size, rank):
    """What a rank holds of one state, if the model is sharded by rows."""
    return element * sum(
        memory.shard_elements(p.shape[0], p[0].numel(), world_size, rank) for p in model.parameters()
    )


@exercise
def held(answer):
    """`answer(model, optimizer)`: (weights, gradients, optimizer) in bytes, held by the rank that calls."""
    is_written(answer)
    tokens = digits()[:12]

    def on_rank(cases):
        return [tried(*case) for case in cases]

    def tried(sharded, dtype, moments):
        model = _gpt(4).to(_device(), dtype)
        model = _shard(model) if sharded else DistributedDataParallel(model)
        optimizer = _adamw(model) if moments else torch.optim.SGD(model.parameters(), lr=LR)
        found = [answer(model, optimizer)]
        loss_of(model, _part(tokens)).backward()
        optimizer.step()
        found.append(answer(model, optimizer))
        return [tuple(f) if isinstance(f, tuple | list) else _said(f) for f in found]

    cases = {
        2: [(False, torch.float32, 2), (True, torch.bfloat16, 2), (True, torch.float32, 0)],
        3: [(True, torch.float32, 2)],
    }
    model = _gpt(4)
    for world_size in cases:
        for rank, results in enumerate(on_ranks(on_rank, cases[world_size], world_size=world_size)):
            for (sharded, dtype, moments), (before, after) in zip(cases[world_size], results, strict=True):
                one = _states(model, dtype.itemsize, world_size if sharded else 1, rank if sharded else 0)
                whole = _states(model, dtype.itemsize, 1, 0)
                who = f"Under {'FSDP' if sharded else 'DDP'} on {world_size} ranks, rank {rank}"
                for found, expected in ((before, (one, 0, 0)), (after, (one, one, moments * one))):
                    _are_the_bytes(found, expected, whole, who, model)
    Ψ = sum(p.numel() for p in model.parameters())
    ours, ddp = (memory.zero_bytes(Ψ, 2, stage, "fp32") for stage in (3, 0))
    return (
        f"Of {Ψ:,} parameters a rank of 2 holds {ours:,} bytes with FSDP, 16Ψ/2, and {ddp:,} with DDP, 16Ψ."
    )


def _are_the_bytes(found, expected, whole, who, model):
    assert isinstance(found, tuple) and len(found) == 3, (
        f"{who} returned {found}, and not the bytes of weights, gradients and optimizer."
    )
    numbers = len([*model.parameters()])
    names = ("weights", "gradients", "the optimizer's states")
    for name, nbytes, right in zip(names, found, expected, strict=True):
        assert isinstance(nbytes, int), f"{who} returned {_said(nbytes)} for {name}, and not whole bytes."
        said = f"{who} returned {nbytes:,} bytes for {name}, and holds {right:,}"
        assert nbytes != right + 4 * numbers, (
            f"{said}: Adam's counter of steps, one number a parameter, is no moment."
        )
        assert nbytes not in (whole, 2 * whole) or nbytes == right, (
            f"{said}: the shape of a DTensor is the global one, and what is here is its to_local()."
        )
        assert nbytes == right, f"{said}."


def _needs(layers, rest, shards, kept):
    """The bytes that a rank needs, as the task says."""
    Ψ, largest = sum(layers) + rest, max(layers)
    whole = 4 * Ψ + 4 * largest if kept else 4 * rest + memory.unsharded_bytes(largest, "fp32")
    return memory.zero_bytes(Ψ, shards, 3, "fp32") + whole


def _sends(layers, rest, shards, kept, world_size):
    """The bytes that a rank sends in a step: an all-reduce, and another gather where weights are dropped."""
    Ψ = sum(layers) + rest
    again = 0 if kept else 4 * sum(layers) * (shards - 1) / shards
    return 8 * Ψ * (world_size - 1) / world_size + again


def _choices(world_size):
    """(shards, kept), the best first."""
    divisors = [s for s in range(2, world_size + 1) if world_size % s == 0]
    return [(s, kept) for kept in (True, False) for s in divisors]


def _choice(layers, rest, budget, world_size):
    return next(c for c in _choices(world_size) if _needs(layers, rest, *c) <= budget)


def _strategy_cases():
    """(world size, parameters of the layers and of the rest, budget): one where each choice is the best."""
    model = _gpt(5, layers=2)
    layers = [sum(p.numel() for p in layer.parameters()) for layer in model.layers]
    rest = sum(p.numel() for p in model.parameters()) - sum(layers)
    large = [48_000_000, 50_000_000, 64_000_000] * 8, 7_000_000
    for world_size, sizes in ((4, (layers, rest)), (6, large)):
        for choice in _choices(world_size):
            budget = int(_needs(*sizes, *choice)) + 1
            if _choice(*sizes, budget, world_size) == choice:
                yield world_size, *sizes, budget


@exercise
def strategy(answer):
    """`answer(layers, rest, budget, device)` are the options of `fully_shard` that fit, and send least."""
    is_written(answer)
    tokens = digits()[:24]

    def on_rank(cases):
        found = []
        for layers, rest, budget in cases:
            options = answer(list(layers), rest, budget, _device())
            mesh = options.get("mesh") if isinstance(options, dict) else None
            if not isinstance(mesh, DeviceMesh):
                return _said(options)
            shape = (*((1,) if mesh.ndim == 1 else ()), *mesh.shape)
            in_order = mesh.mesh.flatten().tolist() == list(range(dist.get_world_size()))
            sent = None
            if sum(layers) < 1e6:
                model = _shard(_gpt(5, layers=2).to(_device()), **options)
                with trace() as counted:
                    loss_of(model, _part(tokens)).backward()
                sent = counted.sent
            found.append((shape, in_order, options.get("reshard_after_forward"), sent))
        return found

    grouped = {}
    for world_size, *case in _strategy_cases():
        grouped.setdefault(world_size, []).append(case)
    for world_size, cases in grouped.items():
        for rank, found in enumerate(on_ranks(on_rank, cases, world_size=world_size)):
            assert not isinstance(found, str), (
                f"Rank {rank} returned {found}; wanted are options of fully_shard, a mesh among them."
            )
            for case, one in zip(cases, found, strict=True):
                _is_the_strategy(world_size, *case, *one)
    return "What fits and sends least: weights kept while there is room, and as few shards as fit."


def _is_the_strategy(world_size, layers, rest, budget, shape, in_order, reshard, sent):
    Ψ = sum(layers) + rest
    shards, kept = _choice(layers, rest, budget, world_size)
    case = f"On {world_size} ranks, with {budget / Ψ:.1f} bytes a parameter,"
    mesh = " × ".join(map(str, shape))
    assert len(shape) == 2 and shape[0] * shape[1] == world_size and in_order, (
        f"{case} the mesh is {mesh}, and has to be replicas × shards of all ranks, in order."
    )
    assert reshard in (None, False), (
        f"{case} reshard_after_forward is {reshard!r}: left out, it drops all units but the last, which "
        "backward needs at once; False keeps them."
    )
    mine = shape[1], reshard is False
    said = f"{case} {mesh} {'with weights kept' if mine[1] else 'with weights dropped'}"
    turned = shape[::-1] == (world_size // shards, shards) != shape and mine[1] == kept
    assert not turned, f"{said} is the mesh turned around: its second axis is the one that shards."
    assert shape[1] > 1, f"{case} the mesh is {mesh}: with one shard nothing is sharded, and DDP does that."
    needs = _needs(layers, rest, *mine)
    assert needs <= budget, f"{said} needs {needs / Ψ:.1f}."
    cost, least = (_sends(layers, rest, *c, world_size) for c in (mine, (shards, kept)))
    assert cost <= least, (
        f"{said} fits, and sends {cost / 4 / Ψ:.2f} Ψ elements a step; {least / 4 / Ψ:.2f} Ψ are enough."
    )
    assert mine == (shards, kept), (
        f"{said} fits, and gathers each weight among {mine[0]} ranks; {shards} are enough."
    )
    assert sent is None or abs(sent - least) < 1, f"{said} sends {sent:,.0f} bytes, and not {least:,.0f}."


@exercise
def precision(answer, places):
    """`answer(compute, reduce)`: the policies (inner, last); `places()`: what of PLACES is in fp32."""
    is_written(answer, places)
    tokens = digits()[10:22]

    def on_rank(cases):
        found = places()
        found = sorted(map(str, found)) if isinstance(found, set | list | tuple) else _said(found)
        return [tried(*case) for case in cases], found

    def tried(compute, reduce):
        policies = answer(compute, reduce)
        pair = isinstance(policies, tuple | list) and len(policies) == 2
        if not pair or not all(isinstance(policy, MixedPrecisionPolicy) for policy in policies):
            return _said(policies)
        inner, last = policies
        model = _shard(_gpt(6, layers=2).to(_device()), last={"mp_policy": last}, mp_policy=inner)
        seen = {}
        hooked = {"norms": model.layers[1].norm_2, "layer outputs": model.layers[0], "logits": model}
        for name, module in hooked.items():
            module.register_forward_hook(lambda m, given, out, name=name: seen.update({name: out.dtype}))
        for name, module in (("up", model.layers[1].up), ("head", model.head)):
            module.register_forward_hook(lambda m, given, out, n=name: seen.update({n: m.weight.dtype}))
        optimizer = _adamw(model)
        with trace() as counted:
            try:
                loss = loss_of(model, _part(tokens))
            except RuntimeError as error:
                if "dtype" in str(error):  # of a module of the last unit, given what a layer has handed on
                    return inner.output_dtype or inner.param_dtype, last.param_dtype
                raise
            loss.backward()
        optimizer.step()
        weight = model.layers[1].up.weight
        seen |= {"shards": weight.dtype, "gradients": weight.grad.dtype}
        seen["moments"] = optimizer.state[weight]["exp_avg"].dtype
        sums = [call.nbytes for call in counted.log if call.kind == "reduce_scatter"]
        dist.all_reduce(loss := loss.detach().float(), op=dist.ReduceOp.AVG)
        return seen, sums, loss.item()

    model = _gpt(6, layers=2)
    expected = loss_of(model, tokens).item()
    last = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("layers."))
    cases = [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.bfloat16),
    ]
    results, listed = on_ranks(on_rank, cases, world_size=2)[0]
    for (compute, reduce), found in zip(cases, results, strict=True):
        case = f"With compute {str(compute)[6:]} and reduce {str(reduce)[6:]}"
        assert not isinstance(found, str), f"{case} came {found}, and not two policies: (inner, last)."
        assert len(found) == 3, (
            f"{case}, the last layer hands on {str(found[0])[6:]}, and the last norm's weights are in "
            f"{str(found[1])[6:]}: param_dtype is for both units, output_dtype for the last."
        )
        seen, sums, loss = found
        seen = {name: str(dtype)[6:] for name, dtype in seen.items()}
        for name, where in (("up", "a layer"), ("head", "the last unit")):
            assert seen[name] == str(compute)[6:], f"{case}, {where} computes in {seen[name]}: param_dtype."
        assert seen["logits"] == "float32", (
            f"{case}, the logits come out in {seen['logits']}, and the loss is computed from them."
        )
        assert seen["layer outputs"] == str(compute)[6:], (
            f"{case}, a layer hands on {seen['layer outputs']}, twice the bytes, and the next one casts it "
            "back: output_dtype is for the last unit."
        )
        layer = sum(p.numel() for p in model.layers[0].parameters())
        for nbytes, where in ((sums[0] / layer, "layers"), (sums[-1] / last, "last unit")):
            assert nbytes == reduce.itemsize, (
                f"{case}, the gradients of the {where} are summed in {nbytes:g} bytes each: reduce_dtype."
            )
        assert abs(loss / expected - 1) < 0.02, f"{case}, the loss is {loss:.3f}, and in fp32 {expected:.3f}."
        if compute == torch.bfloat16:
            truth = {name for name in PLACES if seen[name] == "float32"}
    assert isinstance(listed, list), f"in_fp32 returned {listed}, and not a set of names."
    unknown = [name for name in listed if name not in PLACES]
    assert not unknown, f"{unknown[0]!r} is not among the places: {', '.join(PLACES)}."
    for name, why in PLACES.items():
        assert (name in listed) == (name in truth), (
            f"The {name} are {'' if name in truth else 'not '}in fp32. {why}"
        )
    return f"bf16 computes and fp32 sums; in fp32 are {', '.join(p for p in PLACES if p in truth)}."


@exercise
def clip(answer):
    """`answer(model, max_norm)` clips gradients across shards, and returns the norm that they had."""
    is_written(answer)
    tokens = digits()[100:112]

    def on_rank(shape, max_norm):
        model = _gpt(7).to(_device())
        model.position.weight.requires_grad_(False)
        _shard(model, mesh=_mesh(*shape))
        loss_of(model, _part(tokens)).backward()
        before = [p.detach().to_local().clone() for p in model.parameters()]
        with trace() as counted:
            norm = answer(model, max_norm)
        norm = norm.item() if type(norm) is torch.Tensor and norm.numel() == 1 else norm
        same = all(torch.equal(p.to_local(), b) for p, b in zip(model.parameters(), before, strict=True))
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        whole = [g.full_tensor().cpu() for g in gradients if isinstance(g, DTensor)]
        return norm if isinstance(norm, float) else _said(norm), same, whole, len(counted.log)

    model = _gpt(7)
    model.position.weight.requires_grad_(False)
    loss_of(model, tokens).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    total = _norm(gradients)
    for shape, max_norm in (((3,), MAX_NORM), ((2, 2), 0.3), ((2,), 10 * total)):
        results = on_ranks(on_rank, shape, max_norm, world_size=torch.Size(shape).numel())
        mesh = " × ".join(map(str, shape))
        norms = [norm for norm, *_ in results]
        factor = min(1.0, max_norm / total)
        for rank, (norm, same, whole, calls) in enumerate(results):
            case = f"On a mesh of {mesh}, rank {rank}"
            assert isinstance(norm, float), f"{case} returned {norm}, and not the norm, a float."
            assert same, f"{case} has other weights than before; only the gradients are to be scaled."
            assert max(norms) - min(norms) < 1e-3 * total, (
                f"On a mesh of {mesh} the ranks return norms from {min(norms):.3f} to {max(norms):.3f}, "
                f"and one process has {total:.3f}: a rank alone knows the norm of its shards."
            )
            replicated = len(shape) == 2 and abs(norm / total - shape[0] ** 0.5) < 1e-3
            assert not replicated, (
                f"{case} returned {norm:.3f}, √{shape[0]} times {total:.3f}: each shard is there "
                f"{shape[0]} times, and was summed over all ranks."
            )
            assert abs(norm / total - 1) < 1e-3, (
                f"{case} returned {norm:.3f}, and the gradients of one process have norm {total:.3f}."
            )
            assert len(whole) == len(gradients), f"{case} has gradients that are no DTensors any more."
            left = _norm(whole)
            assert abs(left / (factor * total) - 1) < 1e-3, (
                f"{case}: gradients of norm {total:.3f}, to be clipped at {max_norm:.3g}, "
                f"have {left:.3f} afterwards."
            )
            close = (torch.allclose(w, factor * g, atol=1e-6) for w, g in zip(whole, gradients, strict=True))
            assert all(close), f"{case}: not all gradients are scaled by one factor."
            assert calls <= 1, f"{case} communicated {calls} times; one sum of one number is enough."
    return "One factor for all shards: that of one process, with replicas and with a frozen weight too."


@exercise
def full_state(answer):
    """`answer(model)` is the whole state dict, on the CPU, on rank 0, and an empty one elsewhere."""
    is_written(answer)

    def on_rank(shape, layers):
        model = _shard(_gpt(8, layers=layers).to(_device()), mesh=_mesh(*shape))
        before = [p.to_local().clone() for p in model.parameters()]
        found = answer(model)
        same = all(torch.equal(p.to_local(), b) for p, b in zip(model.parameters(), before, strict=True))
        if not isinstance(found, dict):
            return f"{type(found).__name__}", same
        kinds = {type(value).__name__ for value in found.values()}
        if kinds - {"Tensor", "Parameter"}:
            return min(kinds - {"Tensor", "Parameter"}), same
        devices = {value.device.type for value in found.values()}
        return (found if dist.get_rank() == 0 else len(found), devices), same

    for shape, layers in (((3,), 1), ((2, 2), 2)):
        ranks = on_ranks(on_rank, shape, layers, world_size=torch.Size(shape).numel())
        for rank, (found, same) in enumerate(ranks):
            assert found != "DTensor", (
                f"Rank {rank} returned DTensors: these are this rank's shards, and no plain model takes them."
            )
            assert not isinstance(found, str), f"Rank {rank} returned {found}, and not a state dict."
            assert same, f"Rank {rank} holds other weights than before the call."
            assert found[1] <= {"cpu"}, f"Rank {rank} has the whole weights in the memory of its GPU."
            assert rank == 0 or found[0] == 0, (
                f"Rank {rank} has {found[0]} whole weights too: on eight ranks of a server, eight models."
            )
        state, plain = ranks[0][0][0], _gpt(8, layers=layers)
        expected = plain.state_dict()
        missing = [name for name in expected if name not in state]
        extra = [name for name in state if name not in expected]
        assert not missing, f"Rank 0's state dict lacks {len(missing)} of {len(expected)}: {missing[0]}."
        assert not extra, f"Rank 0's state dict has {extra[0]}, which the plain model has not."
        for name, value in expected.items():
            assert torch.equal(state[name], value), f"{name} in rank 0's state dict is not the whole weight."
        plain.load_state_dict(state)
    return f"{len(state)} whole weights on rank 0, which a plain model loads; none elsewhere."


@exercise
def checkpoint(save, load):
    """`save(folder, model, optimizer, step)` and `load(folder, model, optimizer)`, which returns the step."""
    is_written(save, load)

    def run(source, target, batches, stop):
        """Load from `source` (or begin), save to `target` (or do not) at step `stop`; train to the end."""
        model = _shard(_gpt(9 if source is None else 10 + dist.get_rank()).to(_device()))
        optimizer = _adamw(model)
        step = load(source, model, optimizer) if source else 0
        if type(step) is torch.Tensor and step.numel() == 1:
            step = step.item()
        if not isinstance(step, int):
            return _said(step), True, []
        losses = _train(model, optimizer, batches[step:stop])
        if target:
            save(target, model, optimizer, stop)
            dist.barrier()
        losses += _train(model, optimizer, batches[max(step, stop) :])
        return step, all(isinstance(p, DTensor) for p in model.parameters()), losses

    batches = _batches(200, 12, steps=5)
    expected = _serial(_gpt(9), batches)
    with tempfile.TemporaryDirectory() as folder:
        first, second = (os.path.join(folder, name) for name in ("first", "second"))
        for source, target, world_size, start, stop in (
            (None, first, 4, 0, 2),
            (first, second, 2, 2, 3),
            (second, None, 3, 3, 5),
        ):
            results = on_ranks(run, source, target, batches, stop, world_size=world_size)
            for rank, (step, sharded, losses) in enumerate(results):
                _goes_on(losses, expected, step, start, f"on {world_size} ranks", rank)
                assert sharded, f"Rank {rank} of {world_size} has weights that are not sharded any more."
            if target:
                _is_in_parts(target, world_size)
    return "Saved on 4 ranks, loaded and saved on 2, loaded on 3: the losses of a run that never stopped."


def _goes_on(losses, expected, step, start, where, rank):
    """Fail unless a run that began at `start` has the losses of the one that never stopped."""
    assert step == start, f"Loaded {where}: load returned {step} on rank {rank}, and {start} was saved."
    said = f"losses {losses[0]:.4f}, {losses[1]:.4f}"
    right = f"without a stop {expected[start]:.4f}, {expected[start + 1]:.4f}"
    if start:
        assert _same(losses[:1], expected[start : start + 1]), (
            f"Loaded {where}: {said}; {right}: the weights are not those that were saved."
        )
        assert _same(losses[:2], expected[start : start + 2]), (
            f"Loaded {where}: {said}; {right}: the weights are there, and the optimizer's states are not."
        )
    assert _same(losses, expected[start:]), f"The training that goes on after saving {where} is not the same."


def _is_in_parts(folder, world_size):
    """Fail unless the files in `folder` are of several ranks."""
    sizes = [os.path.getsize(os.path.join(f, name)) for f, _, names in os.walk(folder) for name in names]
    assert sizes, "Nothing was written into the folder."
    assert max(sizes) < 0.75 * sum(sizes), (
        f"One file holds {max(sizes) / sum(sizes):.0%} of what {world_size} ranks have saved: "
        "each has to write its own shards."
    )


def milestone(wrap_, held_, strategy_, policies, places, clip_, full_state_, save, load):
    """Try every task, and then all of them together: the running model, stopped on 4 ranks, resumed on 2."""
    batches = _batches(600, 12, steps=4)

    def running(seed, **options):
        torch.manual_seed(seed)
        model = GPT().to(_device())
        layers = [sum(p.numel() for p in layer.parameters()) for layer in model.layers]
        rest = sum(p.numel() for p in model.parameters()) - sum(layers)
        budget = memory.zero_bytes(sum(layers) + rest, dist.get_world_size(), 3, "fp32") + 4 * sum(layers)
        wrap_(model, (Layer,), **strategy_(layers, rest, budget, _device()) | options)
        return model, _adamw(model)

    def stop(folder):
        model, optimizer = running(0)
        losses = _train(model, optimizer, batches[:2], clip_)
        bytes_held = tuple(held_(model, optimizer))
        save(folder, model, optimizer, 2)
        return losses, bytes_held, full_state_(model)

    def resume(folder):
        model, optimizer = running(1)
        step = load(folder, model, optimizer)
        return _train(model, optimizer, batches[step:], clip_)

    def in_bf16():
        inner, last = policies(torch.bfloat16, torch.float32)
        model, optimizer = running(0, mp_policy=inner, last={"mp_policy": last})
        return _train(model, optimizer, batches[:2], clip_)

    def whole():
        torch.manual_seed(0)
        model = GPT()
        Ψ = sum(p.numel() for p in model.parameters())
        expected = _serial(model, batches[:2], MAX_NORM)
        halfway = {name: value.clone() for name, value in model.state_dict().items()}
        torch.manual_seed(0)
        expected = _serial(GPT(), batches, MAX_NORM)
        with tempfile.TemporaryDirectory() as folder:
            ranks = on_ranks(stop, folder)
            losses = ranks[0][0] + on_ranks(resume, folder, world_size=2)[0]
        assert _same(losses, expected), (
            f"Stopped on 4 ranks and resumed on 2, the last loss is {losses[-1]:.5f}; "
            f"one process that never stopped has {expected[-1]:.5f}."
        )
        for rank, (_, bytes_held, _) in enumerate(ranks):
            states = tuple(memory.zero_states(Ψ, 4, 3, "fp32"))
            assert bytes_held == states, f"Rank {rank} holds {bytes_held} bytes, and not {states}."
        for name, value in halfway.items():
            assert torch.allclose(ranks[0][2][name], value, atol=1e-5), (
                f"{name} in the state dict of step 2 is not that of one process."
            )
        low = on_ranks(in_bf16, world_size=2)[0][-1]
        assert abs(low / expected[1] - 1) < 0.02, (
            f"Computed in bf16 the second loss is {low:.4f}, and in fp32 {expected[1]:.4f}."
        )
        return (
            f"Loss {expected[0]:.3f} → {losses[-1]:.3f} as in one process, over a stop on 4 ranks; "
            f"{sum(states):,} bytes on each, a quarter of {16 * Ψ:,}."
        )

    labs.milestone(
        [
            ("units from the inside out", wrap, wrap_),
            ("bytes held, measured", held, held_),
            ("a strategy for a budget", strategy, strategy_),
            ("a precision for each unit", precision, policies, places),
            ("clipping across shards", clip, clip_),
            ("a whole state dict on rank 0", full_state, full_state_),
            ("a checkpoint in shards", checkpoint, save, load),
        ],
        whole,
        "a model that no rank holds whole, trained, saved, and resumed on other ranks.",
    )
