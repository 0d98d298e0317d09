"""Bytes on a rank, predicted and measured, and what DeepSpeed's own estimators count beside them."""

import random

import torch

from allranks import memory, private
from allranks.check import exercise
from allranks.check.lab_05.common import (
    engine_of,
    new_adam,
    new_config,
    new_gpt,
    on_ranks,
    quietly,
    quoted,
    train,
)
from allranks.check.labs import hidden, is_written
from allranks.model import digits


def masters(engine):
    """The 32-bit weights that this rank's optimizer updates, a list of tensors (ZeRO's stages 1 to 3)."""
    zero = engine.optimizer
    if engine.zero_optimization_stage() == 3:
        return zero.fp32_partitioned_groups_flat
    return zero.single_partition_of_fp32_groups


def counted(engine):
    """(weights, optimizer) in bytes on this rank, between two steps."""
    weights = sum(getattr(p, "ds_tensor", p).nbytes for p in engine.module.parameters())
    states = [t for state in engine.optimizer.optimizer.state.values() for t in state.values()]
    moments = sum(t.nbytes for t in states if torch.is_tensor(t) and t.dim())
    return weights, moments + sum(t.nbytes for t in masters(engine))


def _is_pair(found):
    return (
        isinstance(found, tuple | list) and len(found) == 2 and all(isinstance(n, int | float) for n in found)
    )


def _measured(predicted, held, cases, batches):
    """For each case on this rank: what was predicted, what was measured, and what is there."""
    results = []
    for _, stage, sizes, frozen, optimizer, bf16 in cases:
        model = new_gpt(**sizes)
        model.token.requires_grad_(not frozen)
        zero = {"stage3_param_persistence_threshold": 0} | ({"sub_group_size": 2000} if stage == 3 else {})
        config = new_config(stage, 4, None, bf16=bf16, **zero) | {
            "optimizer": optimizer,
            "zero_allow_untested_optimizer": True,
        }
        with quietly():
            engine = engine_of(model, config)
        train(engine, batches)
        _keep_otherwise(engine.optimizer.optimizer)
        before = counted(engine)
        found = held(engine)
        results.append(
            (before, tuple(found) if _is_pair(found) else quoted(found), counted(engine) == before)
        )
    predictions = [predicted(*sizes) for sizes in _to_predict()]
    return results, [tuple(p) if _is_pair(p) else quoted(p) for p in predictions]


def _keep_otherwise(optimizer):
    """Keep SGD's momentum in 16 bits, and a None beside Adam's moments, as some optimizers do."""
    for state in optimizer.state.values():
        if "momentum_buffer" in state:
            state["momentum_buffer"] = state["momentum_buffer"].bfloat16()
        else:
            state["max_exp_avg_sq"] = None


def _to_predict():
    """(parameters, ranks, stage), for all stages."""
    sizes = (9_216, 4), (7_680_000, 64), (640, 1)
    more = hidden(lambda draw: [(64 * draw.randrange(10**4, 10**7), draw.choice((8, 16, 32)))])
    return [(*one, stage) for stage in range(4) for one in (*sizes, *more)]


@exercise
def bytes_held(predicted, held):
    """`predicted(parameters, world_size, stage)` and `held(engine)`: (weights, optimizer) bytes on a rank."""
    is_written(predicted, held)
    adamw = {"type": "AdamW", "params": new_adam()}
    momentum = {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}
    sizes = {"hidden": random.choice([15, 25, 35]), "heads": 1}  # odd: on two ranks a LayerNorm is padded
    cases = [(f"stage {stage}", stage, sizes, False, adamw, True) for stage in random.sample((1, 2, 3), 3)]
    cases += [("stage 2, SGD with momentum in 16 bits", 2, {"hidden": 16}, False, momentum, True)]
    cases += [("stage 1, a frozen embedding", 1, {"hidden": 24}, True, adamw, True)]
    cases += [("stage 3, all in 32 bits, a frozen embedding", 3, {"hidden": 24}, True, adamw, False)]
    results = on_ranks(_measured, predicted, held, cases, [digits()[:4]])
    for rank, (measured, predictions) in enumerate(results):
        for sizes, found in zip(_to_predict(), predictions, strict=True):
            _judge_prediction(found, *sizes, f"Rank {rank}")
        for (name, *_), (there, found, same) in zip(cases, measured, strict=True):
            _judge_bytes(found, there, same, f"Rank {rank}, {name}")
    return (
        "Predictions match measurements in four stages, with padding, a frozen weight and another "
        "optimizer too."
    )


def _judge_prediction(found, psi, ranks, stage, who):
    case = f"{who}: predicted for {psi:,} parameters on {ranks} ranks in stage {stage}"
    assert isinstance(found, tuple), f"{case}: {found}; expected (weights, optimizer), two numbers."
    right = memory.zero_states(psi, ranks, stage)
    right = right.weights, right.optimizer
    assert found[::-1] != right or found == right, f"{case}: the two numbers are swapped."
    for what, n, m in zip(("weights", "optimizer"), found, right, strict=True):
        assert n == m, f"{case}: {what} {n:,} bytes; expected {m:,}.{_reason(what, n, psi, ranks, stage)}"


def _reason(what, found, psi, ranks, stage):
    """What a usual wrong number comes from."""
    if what == "weights":
        if found in (4 * psi, 4 * psi // ranks):
            return " In bf16 a weight has two bytes; the 32-bit copy belongs to the optimizer."
        if stage < 3:
            return " Below stage 3 every rank keeps all weights."
        return " Stage 3 shards the weights as well."
    if found in (8 * psi, 8 * psi / ranks):
        return " Two moments make 8 bytes; the 32-bit weights are the optimizer's third state."
    return " In stages 1 to 3 each rank has a slice of the optimizer's states; in stage 0, all of them."


def _judge_bytes(found, there, same, who):
    assert isinstance(found, tuple), (
        f"{who}: held returned {found}; expected (weights, optimizer), two numbers."
    )
    assert same, f"{who}: the call changed what the engine holds; held should only look."
    assert found[0] != 0 or there[0] == 0, (
        f"{who}: held found no weights. In stage 3 a parameter is empty; `p.ds_tensor` is its part on "
        "this rank."
    )
    assert found[0] == there[0], (
        f"{who}: {found[0]:,} bytes of weights; expected {there[0]:,}. Measure what the tensors take; "
        "padding counts."
    )
    assert found[1] == there[1], (
        f"{who}: {found[1]:,} bytes of the optimizer; expected {there[1]:,}: all masters, and all tensors "
        "with a dim in the states of engine.optimizer.optimizer."
    )


SECTIONS = ("copy of the gradients", "left out", "whole layer")


def _estimated(answer, cases):
    """On this rank: the answer, and the excess of DeepSpeed's estimators over our bytes."""
    private.deepspeed()
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    results = []
    for stage, psi, largest, ranks in cases:
        if stage == 2:
            _, theirs = stage_1_and_2.estimate_zero2_model_states_mem_needs(psi, ranks, 1, cpu_offload=False)
        else:
            _, theirs, _ = stage3.estimate_zero3_model_states_mem_needs(
                psi, largest, ranks, 1, cpu_offload=False
            )
        results.append((answer(stage, psi, largest, ranks), theirs - memory.zero_bytes(psi, ranks, stage)))
    return [(dict(found) if isinstance(found, dict) else quoted(found), gap) for found, gap in results]


@exercise
def excess(answer):
    """`answer(stage, parameters, largest, world_size)`: why DeepSpeed estimates more, by reason."""
    is_written(answer)
    cases = []
    for stage in (2, 3, 3, 2):
        ranks = random.choice([1, 2, 8])
        psi = 4 * random.randrange(10_001, 90_001, 2)  # eight ranks have no whole number each
        cases.append((stage, psi, 2 * random.randrange(500, 2000), ranks))
    for rank, found in enumerate(on_ranks(_estimated, answer, cases, world_size=1)):
        for (stage, psi, largest, ranks), (reasons, gap) in zip(cases, found, strict=True):
            who = f"Rank {rank}, stage {stage}, {psi:,} parameters, largest layer {largest:,}, {ranks} ranks"
            assert isinstance(reasons, dict), (
                f"Rank {rank}: the function returned {reasons}; expected a dict."
            )
            assert set(reasons) == set(SECTIONS), (
                f"{who}: the names are {', '.join(map(str, reasons))}; expected {', '.join(SECTIONS)}."
            )
            total = sum(reasons.values())
            right = {
                "copy of the gradients": 4 * psi / ranks,
                "left out": -2 * psi / ranks if stage == 3 else 0,
                "whole layer": 4 * largest if stage == 3 else 0,
            }
            for name, value in right.items():
                assert reasons[name] == value, (
                    f"{who}: {name!r} is {reasons[name]:,} bytes; expected {value:,.0f}. All three add up "
                    f"to {total:,}; DeepSpeed estimates {gap:,} bytes more than we do."
                )
            assert total == gap, f"{who}: DeepSpeed has changed its estimator: the excess is now {gap:,}."
    return (
        "DeepSpeed's estimates for stages 2 and 3 are explained to the byte: a copy, an omission and a layer."
    )
