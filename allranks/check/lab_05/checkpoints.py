"""A checkpoint in shards, from which a run resumes, and 16-bit weights that a plain model loads."""

import os
import random
import tempfile

import torch
import torch.distributed as dist

from allranks.check import exercise
from allranks.check.lab_05.common import (
    engine_of,
    in_one_line,
    new_adam,
    new_batches,
    new_config,
    new_gpt,
    on_ranks,
    quietly,
    quoted,
    same,
    train,
)
from allranks.check.labs import is_written
from allranks.launch import RanksTimedOut

STAGES, HIDDEN = (3, 2), 20  # on two ranks a LayerNorm of 20 is padded in neither stage, a message is


def _whole(engine):
    """The 32-bit weights, by DeepSpeed's own function, which all ranks call."""
    from deepspeed.utils import safe_get_full_fp32_param

    whole = {}
    for name, p in engine.module.named_parameters():
        master = safe_get_full_fp32_param(p) if p.requires_grad else p.detach().float()
        whole[name] = master.clone().view(p.ds_shape if hasattr(p, "ds_shape") else p.shape)
    return whole


def _saved(save, folder, batches, adam):
    """For each stage on this rank: train, save, train on; the weights when saved, and both losses behind."""
    results = []
    for stage in STAGES:
        config = new_config(stage, 8, adam, bf16=True)
        model, another = new_gpt(hidden=HIDDEN), new_gpt(seed=5, hidden=HIDDEN)
        for each in (model, another):  # a frozen weight belongs to a checkpoint too
            each.token.requires_grad_(stage == 3)
        engine = engine_of(model, config)
        train(engine, batches[:2])
        where = os.path.join(folder, str(stage))
        with quietly():
            save(engine, where)
        dist.barrier()
        weights, losses = _whole(engine), train(engine, batches[2:])
        other = engine_of(another, config)
        try:
            with quietly():
                path, _ = other.load_checkpoint(where)
        except Exception as error:
            results.append((in_one_line(error), losses, [], weights))
            continue
        results.append((path is not None, losses, train(other, batches[2:]) if path else [], weights))
    return results


def _consolidated(answer, folder, dtypes):
    """In a process of its own: each checkpoint's weights, and whether a plain model takes them."""
    results = []
    for stage, dtype in zip(STAGES, dtypes, strict=True):
        with quietly():
            found = answer(os.path.join(folder, str(stage)), dtype)
        if not isinstance(found, dict) or not all(isinstance(t, torch.Tensor) for t in found.values()):
            results.append(quoted(found))
            continue
        results.append({name: t.detach().clone() for name, t in found.items()})
    return results


@exercise
def checkpoint(save, consolidated):
    """`save(engine, folder)` on all ranks; `consolidated(folder, dtype)` in one process without an engine."""
    is_written(save, consolidated)
    adam, batches = new_adam(), new_batches(8, 4)
    dtypes = random.sample([torch.bfloat16, torch.float16], 2)
    with tempfile.TemporaryDirectory() as folder:
        try:
            ranks = on_ranks(_saved, save, folder, batches, adam)
        except RanksTimedOut as late:
            raise AssertionError(
                f"Saving did not finish: {late}. Every rank has to call save_checkpoint: each "
                "writes its own shards."
            ) from late
        for rank, found in enumerate(ranks):
            for stage, (loaded, losses, resumed, _) in zip(STAGES, found, strict=True):
                _judge_resumed(loaded, losses, resumed, f"Rank {rank}, stage {stage}")
        results = on_ranks(_consolidated, consolidated, folder, dtypes, world_size=1)[0]
    for (stage, dtype, found), (*_, weights) in zip(
        zip(STAGES, dtypes, results, strict=True), ranks[0], strict=True
    ):
        _judge_weights(found, weights, dtype, f"The checkpoint of stage {stage}, consolidated")
    return "Training resumes from the shards, step by step; a plain model loads the whole weights in 16 bits."


def _judge_resumed(loaded, losses, resumed, who):
    assert not isinstance(loaded, str), f"{who}: DeepSpeed cannot load what was saved. {loaded}"
    assert loaded, (
        f"{who}: engine.load_checkpoint(folder) finds no checkpoint there. engine.save_checkpoint writes "
        "one, with a file `latest` that names the last tag."
    )
    assert abs(resumed[0] / losses[0] - 1) < 1e-4, (
        f"{who}: resumed, the next loss is {resumed[0]:.5f}; without a stop it is {losses[0]:.5f}: the "
        "weights differ from those at the moment of saving."
    )
    assert same(resumed, losses), (
        f"{who}: the first loss after resuming is right and the second is {resumed[1]:.5f} instead of "
        f"{losses[1]:.5f}: the optimizer's states were not saved."
    )


def _judge_weights(found, weights, dtype, who):
    assert isinstance(found, dict), f"{who}, came back as {found}; expected a dict of tensors."
    missing, extra = [n for n in weights if n not in found], [n for n in found if n not in weights]
    assert not missing, (
        f"{who}: {len(missing)} of {len(weights)} weights are missing, for example {missing[0]}."
    )
    assert not extra, f"{who}: it has {extra[0]}, which the plain model lacks."
    for name, weight in weights.items():
        t = found[name]
        assert t.shape == weight.shape, (
            f"{who}: {name} has shape {tuple(t.shape)}; expected {tuple(weight.shape)}: in stage 3 the "
            "module's parameters are empty on purpose."
        )
        assert t.dtype == dtype, f"{who}: {name} is in {t.dtype}; expected {dtype}."
        right = weight.to(dtype)
        twice = weight.bfloat16().to(dtype)
        assert torch.equal(t, right) or not torch.equal(t, twice), (
            f"{who}: {name} was rounded to bfloat16 first. Start from the 32-bit master weights."
        )
        assert torch.equal(t, right), f"{who}: {name} is not the saved weight rounded once."
    plain = new_gpt(seed=9, hidden=HIDDEN).to(dtype)
    plain.load_state_dict(found)
