"""The checks of Lab 02: the solved lab's own answers are right, the usual wrong ones get a hint."""

import os
from types import SimpleNamespace

import pytest
import solved
import torch
import torch.distributed as dist
from solved import hang, nothing
from together import assert_verdicts, assert_wrong
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from verdicts import verdict as verdict_of

from allranks import check
from allranks.check import labs
from allranks.model import loss_of

ANSWERS = solved.answers("ddp_training")
TASKS = {
    "reduce_mean": ("reduce_mean",),
    "loader": ("make_loader", "in_epoch"),
    "average_gradients": ("average_gradients",),
    "train_step": ("train_step",),
    "evaluate": ("evaluate",),
    "checkpoint": ("save", "load"),
    "fit": ("fit",),
}
ALL = [name for names in TASKS.values() for name in names]
right = SimpleNamespace(**{name: ANSWERS[name] for name in ALL})


def verdict(capfd, task, *answers):
    return verdict_of(capfd, getattr(check.lab_02, task), *answers)


def spoil(*given):
    for one in given:
        if isinstance(one, torch.Tensor):
            one.zero_()
        if isinstance(one, torch.nn.Module):
            torch.nn.utils.vector_to_parameters(torch.zeros(10**6), one.parameters())
    return given[0]


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_what_does_nothing_or_harm_is_wrong():
    assert_wrong(check.lab_02, TASKS, spoil)


def test_what_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 2.0)
    assert "still running after 2 s" in verdict(capfd, "reduce_mean", hang)


def the_sum(x):
    total = x.detach().clone()
    dist.all_reduce(total)
    return total


def for_four(x):
    return the_sum(x) / 4


def on_rank_0_only(x):
    total = x.detach().clone()
    dist.reduce(total, dst=0)
    return total / dist.get_world_size() if dist.get_rank() == 0 else x.detach()


def in_place(x):
    mean = x.detach()
    dist.all_reduce(mean)
    return mean.div_(dist.get_world_size())


def a_number(x):
    return the_sum(x).sum().item() / dist.get_world_size()


def in_fp32(x):
    return right.reduce_mean(x.float())


def with_its_graph(x):
    return x - x.detach() + right.reduce_mean(x)


def scalar(x):
    return right.reduce_mean(x).mean()


def test_a_wrong_mean():
    cases = [
        (the_sum, "is the sum"),
        (for_four, "is 0.5 times the mean"),
        (on_rank_0_only, "every rank needs it"),
        (in_place, "sum a copy"),
        (a_number, "of type float"),
        (in_fp32, "is in torch.float32; expected torch.float64"),
        (with_its_graph, "carries a graph"),
        (scalar, "has shape ()"),
    ]
    assert_verdicts(check.lab_02.reduce_mean, [((answer,), hint) for answer, hint in cases])


def loader_of(sampled=True, shuffle=True, sampler_drops=True, drops=True, share=True, seeded=True):
    def make_loader(data, batch_size, seed):
        size = batch_size // dist.get_world_size() if share else batch_size
        if not sampled:
            return DataLoader(data, size, shuffle=shuffle, drop_last=drops)
        seed = seed if seeded else 0
        sampler = DistributedSampler(data, shuffle=shuffle, seed=seed, drop_last=sampler_drops)
        return DataLoader(data, size, sampler=sampler, drop_last=drops)

    return make_loader


def stretches(data, batch_size, seed):
    """A contiguous part for each rank, shuffled there."""
    mine = data[: len(data) // batch_size * batch_size].chunk(dist.get_world_size())[dist.get_rank()]
    sampler = DistributedSampler(mine, num_replicas=1, rank=0, seed=seed)
    return DataLoader(mine, batch_size // dist.get_world_size(), sampler=sampler)


def not_told(loader, epoch):
    return loader


def another_seed_on_each_rank(data, batch_size, seed):
    return loader_of()(data, batch_size, seed + dist.get_rank())


def other_each_time(loader, epoch):
    loader.sampler.set_epoch(loader.sampler.epoch + 1)
    return loader


def test_a_wrong_loader():
    cases = [
        (loader_of(), right.in_epoch, "✓"),
        (loader_of(), not_told, "set_epoch"),
        (loader_of(), other_each_time, "requested again"),
        (loader_of(sampled=False), not_told, "or ranks shuffle with different seeds"),
        (loader_of(sampled=False, shuffle=False), not_told, "all ranks have the same rows"),
        (loader_of(sampler_drops=False), right.in_epoch, "the sampler repeats"),
        (loader_of(drops=False), right.in_epoch, "do not fill a batch"),
        (another_seed_on_each_rank, right.in_epoch, "or ranks shuffle with different seeds"),
        (loader_of(share=False), right.in_epoch, "for all ranks together"),
        (loader_of(shuffle=False), right.in_epoch, "should be shuffled"),
        (loader_of(seeded=False), right.in_epoch, "seed 4 gives the same order as seed 3"),
        (stretches, right.in_epoch, "cannot be compared"),
        (loader_of(), nothing, "in_epoch returned None"),
        (lambda data, *_: [data], not_told, "returned a list"),
    ]
    assert_verdicts(
        check.lab_02.loader,
        [
            (
                (
                    make_loader,
                    in_epoch,
                ),
                hint,
            )
            for make_loader, in_epoch, hint in cases
        ],
    )


def each(average=True, of="grad", zeros=False):
    def average_gradients(model):
        for p in model.parameters():
            if zeros and p.grad is None:
                p.grad = torch.zeros_like(p)
            t = p.data if of == "data" else p.grad
            if t is not None:
                dist.all_reduce(t, op=dist.ReduceOp.AVG if average else dist.ReduceOp.SUM)

    return average_gradients


def right_but_many(model):
    for p in model.parameters():
        holders = torch.tensor(int(p.grad is not None))
        dist.all_reduce(holders)
        if holders:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)


def over_who_has_one(model):
    for p in model.parameters():
        holders = torch.tensor(int(p.grad is not None))
        dist.all_reduce(holders)
        if holders:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad)
            p.grad /= holders


def as_objects(model):
    gradients = [None] * dist.get_world_size()
    dist.all_gather_object(gradients, [p.grad for p in model.parameters()])
    for p, *parts in zip(model.parameters(), *gradients, strict=True):
        given = [part for part in parts if part is not None]
        p.grad = sum(given) / len(parts) if given else None


def by_name(model):
    for _, p in model.named_parameters(remove_duplicate=False):
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
            p.grad /= 1 if p.shape[0] != 7 else dist.get_world_size()


def test_a_wrong_average():
    cases = [
        (each(average=False), "is the sum"),
        (each(of="data"), "is still its own"),
        (each(average=False, of="data"), "average only their gradients"),
        (each(zeros=True), "was None on every rank"),
        (right_but_many, "took 10 all-reduces"),
        (over_who_has_one, "the others count as zero"),
        (as_objects, "travelled by all_gather"),
        (by_name, "two names, one gradient"),
    ]
    assert_verdicts(check.lab_02.average_gradients, [((answer,), hint) for answer, hint in cases])


def step_of(clear=True, scale="rows", sync="last", mean=True, split=True, forward_outside=False, graph=False):
    def train_step(model, batch, micro_batches, optimizer):
        if clear:
            optimizer.zero_grad()
        parts = batch.tensor_split(micro_batches if split else 1)
        total = 0
        for number, rows in enumerate(parts):
            is_last = number == len(parts) - 1
            if (is_last and sync == "last") or sync == "all":
                loss = loss_of(model, rows) * factor(rows, batch, len(parts))
                loss.backward()
            elif forward_outside:
                loss = loss_of(model, rows) * factor(rows, batch, len(parts))
                with model.no_sync():
                    loss.backward()
            else:
                with model.no_sync():
                    loss = loss_of(model, rows) * factor(rows, batch, len(parts))
                    loss.backward()
            total = total + (loss if graph else loss.detach())
        optimizer.step()
        return (total if graph else right.reduce_mean(total)) if mean else total

    def factor(rows, batch, parts):
        return {"rows": len(rows) / len(batch), "parts": 1 / parts, "none": 1}[scale]

    return train_step


def clears_at_its_end(model, batch, micro_batches, optimizer):
    loss = step_of(clear=False)(model, batch, micro_batches, optimizer)
    optimizer.zero_grad()
    return loss


def no_step(model, batch, micro_batches, optimizer):
    return right.reduce_mean(loss_of(model, batch))


def test_a_wrong_step():
    cases = [
        (step_of(), "✓"),
        (step_of(clear=False), "call zero_grad before the first backward"),
        (clears_at_its_end, "call zero_grad before the first backward"),
        (step_of(scale="none"), "times as long as in one process"),
        (step_of(scale="parts"), "whether its micro-batch is large or small"),
        (step_of(sync="all"), "the gradients are sent 3 times"),
        (step_of(sync="none"), "the last micro-batch has to send"),
        (step_of(forward_outside=True), "enclose forward and backward"),
        (step_of(mean=False), "that of its own rows"),
        (step_of(split=False), "saw 7 rows at once"),
        (no_step, "no weight has changed"),
    ]
    assert_verdicts(check.lab_02.train_step, [((answer,), hint) for answer, hint in cases])


def evaluation(
    parts="striped", combine="sums", mode="eval", restore=True, wrapped=False, grad=False, size=None
):
    def evaluate(model, data, batch_size):
        was_training, rank, world_size = model.training, dist.get_rank(), dist.get_world_size()
        if mode == "eval":
            model.eval()
        if parts == "striped":
            mine = data[rank::world_size]
        elif parts == "all":
            mine = data
        else:
            drop = parts == "dropped"
            mine = data[list(DistributedSampler(data, shuffle=False, drop_last=drop))]
        inner = model if wrapped else model.module
        losses = [torch.zeros(())] * 0
        with torch.set_grad_enabled(grad):
            for rows in mine.split(size or batch_size) if len(mine) else []:
                losses.append(loss_of(inner, rows) * len(rows))
        if restore:
            model.train(was_training)
        total = torch.stack([sum(losses, torch.zeros(())), torch.tensor(float(len(mine)))])
        if combine == "own":
            return total[0] / total[1]
        if combine == "means":
            return right.reduce_mean(total[0] / total[1])
        dist.all_reduce(total)
        return total[0] / total[1]

    return evaluate


def test_a_wrong_evaluation():
    cases = [
        (evaluation(), "✓"),
        (evaluation(combine="means"), "the mean of the ranks' means"),
        (evaluation(combine="own"), "over its own examples"),
        (evaluation(parts="padded"), "the sampler repeats"),
        (evaluation(parts="dropped"), "the sampler drops"),
        (evaluation(parts="all"), "but the ranks computed 14"),
        (evaluation(mode="train"), "in training mode"),
        (evaluation(restore=False), "leaves the model in another mode"),
        (evaluation(grad=True), "has a graph"),
        (evaluation(size=100), "computed 4 at once; batch_size allows 3"),
    ]
    assert_verdicts(check.lab_02.evaluate, [((answer,), hint) for answer, hint in cases])


def saver(who="rank 0", barrier="after", atomic=True, inside=True, what=None, clean=True):
    def save(path, model, optimizer, epoch):
        if barrier == "before":
            dist.barrier()
        if dist.get_rank() == 0 or who == "all":
            inner = model.module if inside and isinstance(model, DistributedDataParallel) else model
            state = {"model": inner.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            state.pop(what, None)
            part = path.with_suffix(f".part{dist.get_rank()}") if atomic else path
            torch.save(state if what != "itself" else inner, part)
            if not clean:
                torch.save(state, path.with_suffix(".old"))
            os.replace(part, path)
            if barrier == "rank 0":
                dist.barrier()
        if barrier == "after":
            dist.barrier()

    return save


def in_two_steps(how):
    """A part file, complete, that then takes the place of the checkpoint in two steps instead of one."""

    def save(path, model, optimizer, epoch):
        part = path.with_suffix(".part")
        saver(barrier="none")(part, model, optimizer, epoch)
        if dist.get_rank() == 0:
            if how == "removed":
                path.unlink(missing_ok=True)
                part.rename(path)
            else:
                path.write_bytes(part.read_bytes())
                part.unlink()
        dist.barrier()

    return save


def loader_from(ranks="all", model=True, optimizer=True, epoch=True, strict=True):
    def load(path, into, optimizer_into):
        if ranks == "all" or dist.get_rank() == 0:
            state = torch.load(path, map_location="cpu")
            if model:
                (into.module if strict and hasattr(into, "module") else into).load_state_dict(
                    state["model"], strict=strict
                )
            if optimizer:
                optimizer_into.load_state_dict(state["optimizer"])
            return state["epoch"] if epoch else None
        return 2

    return load


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_a_wrong_checkpoint():
    cases = [
        (saver(), loader_from(), "✓"),
        (saver(who="all"), loader_from(), "Rank 1 writes too"),
        (saver(barrier="none"), loader_from(), "before the file was complete"),
        (saver(barrier="before"), loader_from(), "before the file was complete"),
        (saver(atomic=False), loader_from(), "the previous checkpoint was lost"),
        (saver(inside=False), loader_from(), "under model it has module."),
        (saver(what="optimizer"), loader_from(), "a dict with model, optimizer and epoch"),
        (saver(what="itself"), loader_from(), "torch.load cannot read it"),
        (saver(clean=False), loader_from(), "save left last.old"),
        (in_two_steps("removed"), loader_from(), "Rank 0 removes the old checkpoint"),
        (in_two_steps("copied"), loader_from(), "Rank 0 writes to the old checkpoint"),
        (saver(), loader_from(ranks="0"), "On rank 1 of 3, the model does not have the weights"),
        (saver(), loader_from(model=False), "the model does not have the weights"),
        (saver(), loader_from(strict=False), "On rank 0 of 3, the model does not have the weights"),
        (saver(), loader_from(optimizer=False), "AdamW's moments"),
        (saver(), loader_from(epoch=False), "load returned None"),
    ]
    assert_verdicts(
        check.lab_02.checkpoint,
        [
            (
                (
                    save,
                    load,
                ),
                hint,
            )
            for save, load, hint in cases
        ],
    )


def trainer(
    wrap=True, told=True, resume=True, optimizer_too=True, saves="each", first=0, own_score=False, told_by=0
):
    def fit(model, optimizer, loader, held_out, epochs, micro_batches, path):
        if not wrap:
            model.no_sync, model.module = torch.no_grad, model
        else:
            model = DistributedDataParallel(model)
        start = 0
        found = [path.exists()]
        if told_by is not None:
            dist.broadcast_object_list(found, src=told_by)
        if resume and found[0]:
            unused = torch.optim.AdamW(model.parameters(), lr=0.0123)
            start = right.load(path, model, optimizer if optimizer_too else unused)
        losses, scores = [], []
        for epoch in range(start + first, epochs):
            batches = right.in_epoch(loader, epoch) if told else loader
            for batch in batches:
                loss = right.train_step(model, batch, micro_batches, optimizer)
                losses.append(loss.item())
            score = loss_of(model.module, held_out[dist.get_rank() :: 3]) if own_score else None
            scores.append((right.evaluate(model, held_out, 16) if score is None else score).item())
            if saves == "each":
                right.save(path, model, optimizer, epoch + 1)
        if saves == "last":
            right.save(path, model, optimizer, epochs)
        return losses, scores

    return fit


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_a_wrong_trainer():
    cases = [
        (trainer(), "✓"),
        (trainer(wrap=False), "✗"),
        (trainer(told=False), "the batches of epoch 0 twice"),
        (trainer(resume=False), "trained 3 epochs"),
        (trainer(optimizer_too=False), "resume the optimizer too"),
        (trainer(saves="never"), "there is no checkpoint"),
        (trainer(saves="last"), "rank 0 wrote 1 checkpoints"),
        (trainer(first=1), "returned 3 losses; expected 6"),
        (trainer(own_score=True), "on the held-out examples"),
        (trainer(told_by=None), "Each rank asks its own disk"),
        (trainer(told_by=1), "✗"),
    ]
    assert_verdicts(check.lab_02.fit, [((answer,), hint) for answer, hint in cases])


@pytest.mark.parametrize(
    "task, answers, hint",
    [
        ("evaluate", [evaluation(wrapped=True)], "Calling the DDP model broadcasts rank 0's buffers"),
        ("checkpoint", [saver(barrier="rank 0"), loader_from()], "Every rank has to reach the barrier"),
        ("average_gradients", [each()], "all ranks have to send the same messages"),
    ],
)
def test_ranks_that_wait_for_each_other_are_told_why(
    capfd, monkeypatch, task, answers, hint, nothing_is_left_behind
):
    monkeypatch.setattr(labs, "SECONDS", 6.0)
    assert hint in verdict(capfd, task, *answers)


def test_a_milestone_with_tasks_left_is_not_reached(capfd):
    check.lab_02.milestone(right.reduce_mean, *[nothing] * 8)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "✓ a mean over ranks"
    assert lines[-2:] == ["✗ the trainer", "1 of 7 tasks are solved."]
