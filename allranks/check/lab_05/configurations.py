"""A configuration for every stage with the loss of one process, and the same one with states on the host."""

import copy
import random

import torch

from allranks.check import exercise
from allranks.check.lab_05.common import (
    CPU,
    RANKS,
    engine_of,
    in_one_line,
    new_adam,
    new_batches,
    new_config,
    new_gpt,
    on_ranks,
    quoted,
    same,
    train,
    trained_alone,
)
from allranks.check.labs import is_written

STAGES = range(4)
BATCHES = (
    " train_batch_size counts all ranks and all micro-batches; train_micro_batch_size_per_gpu counts one of "
    "them on one rank."
)


def _moments(engine):
    """Elements of Adam's moments on this rank."""
    optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    states = [t for state in optimizer.state.values() for t in state.values()]
    return sum(t.numel() for t in states if torch.is_tensor(t) and t.dim())


def _group(engine):
    optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    group = optimizer.param_groups[0]
    return {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}


def _configured(answer, cases, batches):
    """For each case on this rank: what was configured, what ran, and its losses, as plain data."""
    results = []
    for stage, micro_batch, accumulation, adam in cases:
        given = copy.deepcopy(adam)
        config = answer(stage, micro_batch, accumulation, adam)
        if not isinstance(config, dict):
            return [f"returned {quoted(config)}; expected a dict"]
        seen = {"same adam": adam == given}
        try:
            engine = engine_of(new_gpt(), copy.deepcopy(config))
        except Exception as error:
            return [*results, seen | {"refused": in_one_line(error)}]
        seen["stage"], seen["clipping"] = engine.zero_optimization_stage(), engine.gradient_clipping()
        seen["batch"] = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
        seen["16 bits"] = engine.bfloat16_enabled() or engine.fp16_enabled()
        seen["adam"] = {name: list(v) if name == "betas" else v for name, v in _group(engine).items()}
        seen["adamw"] = type(getattr(engine.optimizer, "optimizer", engine.optimizer)).__name__
        right = seen["batch"] == (micro_batch, accumulation)  # otherwise the micro-batches do not fit
        seen["losses"] = train(engine, batches) if right else []
        seen["moments"] = _moments(engine)
        results.append(seen)
    return results


@exercise
def configuration(answer):
    """`answer(stage, micro_batch, accumulation, adam)`: a dict for DeepSpeed, for every stage."""
    is_written(answer)
    adam, size = new_adam(), 12
    micro_batch, accumulation = random.choice([(2, 3), (3, 2)])
    cases = [(stage, micro_batch, accumulation, adam) for stage in random.sample(STAGES, 4)]
    batches = new_batches(size, 3)
    alone, model = trained_alone(batches, adam)
    clipped, _ = trained_alone(batches, adam, clip=1.0)
    elements = sum(p.numel() for p in model.parameters())
    for rank, found in enumerate(on_ranks(_configured, answer, cases, batches)):
        for (stage, *_), seen in zip(cases, found):
            who = f"Rank {rank}, stage {stage}"
            assert isinstance(seen, dict), f"Rank {rank}: the function {seen}."
            assert seen["same adam"], f"{who}: the dict `adam` has changed; others still need it."
            help_ = BATCHES if "batch" in seen.get("refused", "") else ""
            assert "refused" not in seen, f"{who}: DeepSpeed refuses this: {seen['refused']}.{help_}"
            _judge_settings(seen, who, stage, (micro_batch, accumulation), adam)
            assert not same(seen["losses"], clipped), (
                f"{who}: the losses show that gradients were clipped; this task does not clip."
            )
            assert same(seen["losses"], alone), (
                f"{who}: the last loss is {seen['losses'][-1]:.5f}; one process has {alone[-1]:.5f}."
            )
            share = seen["moments"] / (2 * elements)
            wanted = 1 if stage == 0 else 1 / RANKS
            assert abs(share - wanted) < 0.02, (
                f"{who}: this rank holds {share:.2f} of Adam's moments; expected {wanted:.2f}."
            )
    return "Stages 0 to 3 have one process's losses, and each rank holds its share of Adam's moments."


def _judge_settings(seen, who, stage, batch, adam):
    assert seen["stage"] == stage, (
        f"{who}: the engine runs stage {seen['stage']}. The stage is read only from the section "
        '"zero_optimization"; without it, or with a wrong name, stage 0 runs.'
    )
    assert seen["batch"] == batch, (
        f"{who}: DeepSpeed understood micro-batches of {seen['batch'][0]} and {seen['batch'][1]} of them "
        f"a step; expected {batch[0]} and {batch[1]}.{BATCHES}"
    )
    assert not seen["16 bits"], f"{who}: the engine computes in 16 bits; this task stays in 32."
    assert seen["clipping"] == 0, (
        f"{who}: DeepSpeed clips the gradient's norm at {seen['clipping']:g}, which it does unless "
        '"gradient_clipping" says 0.'
    )
    assert seen["adamw"] == "AdamW", (
        f"{who}: the optimizer is {seen['adamw']}; expected AdamW: its type and its params belong in the "
        'section "optimizer".'
    )
    for name, value in seen["adam"].items():
        assert value == adam[name], (
            f'{who}: AdamW\'s {name} is {value}; expected {adam[name]}: `adam` goes into "optimizer" as '
            'its "params".'
        )


def _offloaded(answer, configs, batches):
    results = []
    for config in configs:
        given, stage = copy.deepcopy(config), config["zero_optimization"]["stage"]
        try:
            moved = answer(config)
        except ValueError as error:
            results.append({"raised": str(error) or "no words", "same": config == given})
            continue
        seen = {"same": config == given, "dict": isinstance(moved, dict) or quoted(moved)}
        results.append(seen)
        if seen["dict"] is not True or stage == 0:
            continue
        kept = copy.deepcopy(moved)
        zero = kept.pop("zero_optimization", None) or {}
        expected = copy.deepcopy(given)
        options = expected.pop("zero_optimization")
        seen["rest"] = kept == expected and {k: v for k, v in zero.items() if k in options} == options
        try:
            engine = engine_of(new_gpt(), copy.deepcopy(moved))
        except Exception as error:
            seen["refused"] = in_one_line(error)
            continue
        optimizer = engine.optimizer
        seen["ran"] = engine.zero_optimization_stage()
        seen["optimizer"] = bool(getattr(optimizer, "offload_optimizer" if stage == 3 else "cpu_offload"))
        seen["weights"] = bool(getattr(optimizer, "offload_param", False))
        seen["ignored"] = stage < 3 and "offload_param" in zero
        seen["losses"] = train(engine, batches)
    return results


@exercise
def offload(answer):
    """`answer(config)`: a new dict with all on the CPU that its stage allows; stage 0: ValueError."""
    is_written(answer)
    adam, batches = new_adam(), new_batches(8, 3)
    bucket = {"reduce_bucket_size": random.choice([30_000, 50_000])}
    configs = [new_config(stage, 8, adam, **bucket) for stage in random.sample(STAGES, 4)]
    alone, _ = trained_alone(batches, adam)
    for rank, found in enumerate(on_ranks(_offloaded, answer, configs, batches)):
        kinds = [seen.get("dict", True) for seen in found]
        assert True in kinds, f"Rank {rank}: the function returned {kinds[0]}; expected a dict."
        for config, seen in zip(configs, found, strict=True):
            stage = config["zero_optimization"]["stage"]
            _judge_offload(seen, stage, f"Rank {rank}, stage {stage}", alone)
    return (
        "The optimizer is on the host in stages 1 to 3, in 3 the weights too; 0 is refused; losses are equal."
    )


def _judge_offload(seen, stage, who, alone):
    assert seen["same"], (
        f"{who}: the configuration that was given has changed, sections included; copy it deeply."
    )
    if stage == 0:
        assert "raised" in seen, (
            f"{who}: the function returned a configuration; expected ValueError. Stage 0 has nothing to "
            "offload: DeepSpeed reads the line but ignores it."
        )
        return
    assert "raised" not in seen, (
        f"{who}: ValueError ({seen['raised']}), but this stage can offload the optimizer."
    )
    assert seen["dict"] is True, f"{who}: the function returned {seen['dict']}; expected a dict."
    assert seen["rest"], f"{who}: a setting other than the offload devices has changed: keep all others."
    assert "refused" not in seen, f"{who}: DeepSpeed refuses this configuration. {seen['refused']}"
    assert seen["ran"] == stage, f"{who}: the engine runs stage {seen['ran']}."
    assert seen["optimizer"], (
        f'{who}: the optimizer stays on the device: "offload_optimizer": {quoted(CPU)} belongs in '
        '"zero_optimization".'
    )
    assert not seen["ignored"], (
        f"{who}: offload_param is there, but below stage 3 DeepSpeed silently ignores it: leave it out."
    )
    assert seen["weights"] == (stage == 3), (
        f"{who}: the weights stay on the device, but in stage 3 they can leave: see offload_param."
    )
    assert same(seen["losses"], alone), (
        f"{who}: the last loss is {seen['losses'][-1]:.5f}; one process has {alone[-1]:.5f}."
    )
