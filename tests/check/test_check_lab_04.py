"""The checks of Lab 04: the solved lab's own answers are right, the usual wrong ones get a hint."""

import pytest
import solved
import torch
import torch.distributed as dist
import torch.nn.functional as F
from solved import hang
from together import assert_verdicts, assert_wrong
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from verdicts import verdict as verdict_of

from allranks import check
from allranks.check import labs

ANSWERS = solved.answers("mixed_precision")
TASKS = {
    "forward_backward": ("forward_backward",),
    "cross_entropy": ("cross_entropy",),
    "unscale": ("unscale",),
    "loss_scaler": ("LossScaler",),
    "clipped_step": ("clipped_step",),
    "rank_scaler": ("RankScaler",),
    "shard": ("shard",),
}


def verdict(capfd, task, *answers):
    return verdict_of(capfd, getattr(check.lab_04, task), *answers)


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_what_does_nothing_is_wrong():
    assert_wrong(check.lab_04, TASKS)


def test_what_hangs_is_ended(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 1.5)
    assert "still running after 1.5 s" in verdict(capfd, "forward_backward", hang)


def a_step(forward=True, loss=True, backward=False, scaled=True, returned="loss", harm=None, rows=None):
    def forward_backward(model, tokens, dtype, loss_function, scale):
        if harm == "weights":
            model.module.to(dtype)
        device = tokens.device.type
        with torch.autocast(device, dtype=dtype, enabled=forward):
            logits = model(tokens[:rows, :-1])
        with torch.autocast(device, dtype=dtype, enabled=loss):
            value = loss_function(logits.flatten(0, 1), tokens[:rows, 1:].flatten())
        with torch.autocast(device, dtype=dtype, enabled=backward):
            if scaled is not None:
                (scale(value) if scaled else value).backward()
        if harm == "tokens":
            tokens.zero_()
        if harm == "step":
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        return {"loss": value.detach(), "scaled": scale(value).detach(), "graph": value}[returned]

    return forward_backward


def test_a_step():
    cases = [
        ({"forward": False, "loss": False}, "the forward pass belongs in autocast"),
        ({"loss": False}, "computed outside autocast"),
        ({"backward": True}, "ran inside autocast"),
        ({"scaled": False}, "the gradients are not scaled"),
        ({"scaled": None}, "call `backward`"),
        ({"returned": "scaled"}, "is the scaled one"),
        ({"returned": "graph"}, "detach it"),
        ({"harm": "weights"}, "the weights have become bfloat16"),
        ({"harm": "tokens"}, "the tokens have changed"),
        ({"harm": "step"}, "should not take the step"),
        ({"rows": 2}, "targets; expected"),
    ]
    assert_verdicts(check.lab_04.forward_backward, [((a_step(**mistake),), hint) for mistake, hint in cases])


def always_bf16(model, tokens, dtype, loss_function, scale):
    return a_step()(model, tokens, torch.bfloat16, loss_function, scale)


def own_loss(model, tokens, dtype, loss_function, scale):
    return a_step()(model, tokens, dtype, F.cross_entropy, scale)


def test_a_step_that_ignores_an_argument():
    cases = [(always_bf16, "expected the requested dtype, float16"), (own_loss, "it is an argument")]
    assert_verdicts(check.lab_04.forward_backward, [((answer,), hint) for answer, hint in cases])


def in_16_bits(logits, targets):
    return F.cross_entropy(logits, targets)


def without_the_largest(logits, targets):
    logits = logits.float()
    return (logits.exp().sum(-1).log() - logits.gather(-1, targets[:, None])[:, 0]).mean()


def log_of_softmax(logits, targets):
    return -logits.float().softmax(-1).gather(-1, targets[:, None]).log().mean()


def converted_late(logits, targets):
    shifted = logits - logits.max(-1, keepdim=True).values
    return (shifted.exp().sum(-1).log() - shifted.gather(-1, targets[:, None])[:, 0]).float().mean()


def summed(logits, targets):
    return F.cross_entropy(logits.float(), targets, reduction="sum")


def in_place(logits, targets):
    logits.data -= logits.data.max(-1, keepdim=True).values
    return F.cross_entropy(logits.float(), targets)


def of_28(logits, targets):
    return F.cross_entropy(logits.float().view(-1, 28), targets)


def without_gradient(logits, targets):
    return F.cross_entropy(logits.detach().float(), targets)


def test_a_loss():
    cases = [
        (lambda logits, targets: F.cross_entropy(logits.float(), targets), "✓"),
        (lambda logits, targets: in_16_bits(logits.double(), targets), "in float64"),
        (in_16_bits, "outside autocast: the loss is in bfloat16; expected float32"),
        (without_the_largest, "subtract each row's largest"),
        (log_of_softmax, "do not take the logarithm of a softmax"),
        (converted_late, "convert before the first operation"),
        (summed, "the sum over rows"),
        (in_place, "have changed"),
        (of_28, "did not finish"),
        (without_gradient, "no gradient reaches"),
    ]
    assert_verdicts(check.lab_04.cross_entropy, [((answer,), hint) for answer, hint in cases])


def unscaling(groups=None, test="isfinite", divide=True, missing=False):
    def unscale(optimizer, scale):
        found = False
        for group in optimizer.param_groups[:groups]:
            for p in group["params"]:
                if p.grad is None and not missing:
                    continue
                g = ANSWERS["here"](p.grad)
                if divide:
                    g /= scale
                bad = {
                    "isfinite": lambda g=g: (~g.isfinite()).any(),
                    "isinf": lambda g=g: g.isinf().any(),
                    "sum": lambda g=g: not g.sum().isfinite(),
                    "max": lambda g=g: g.abs().max() > 1e38,
                    "none": lambda: False,
                }[test]
                found = found or bool(bad())
        return found

    return unscale


def test_unscaling():
    cases = [
        ({"groups": 1}, "was not divided by"),
        ({"test": "isinf"}, "a gradient contains nan"),
        ({"test": "sum"}, "their sum overflows"),
        ({"test": "max"}, "did not finish"),
        ({"test": "none"}, "a gradient contains inf"),
        ({"divide": False}, "was not divided by"),
        ({"missing": True}, "did not finish"),
    ]
    assert_verdicts(check.lab_04.unscale, [((unscaling(**mistake),), hint) for mistake, hint in cases])


LossScaler, RankScaler = ANSWERS["LossScaler"], ANSWERS["RankScaler"]


class AlwaysUnscales(LossScaler):
    def step(self, optimizer):
        self.unscale_(optimizer)
        if not self.found_inf:
            optimizer.step()


class NeverUnscales(LossScaler):
    def step(self, optimizer):
        if not self.found_inf:
            optimizer.step()


class NeverSkips(LossScaler):
    def step(self, optimizer):
        if self.found_inf is None:
            self.unscale_(optimizer)
        optimizer.step()


class ZeroesAndSteps(LossScaler):
    def step(self, optimizer):
        if self.found_inf is None:
            self.unscale_(optimizer)
        if self.found_inf:
            optimizer.zero_grad(set_to_none=False)
        optimizer.step()


class NeverSteps(LossScaler):
    def step(self, optimizer):
        if self.found_inf is None:
            self.unscale_(optimizer)


class RemembersGoodSteps(LossScaler):
    def update(self):
        good = self.good_steps
        bad = self.found_inf
        super().update()
        self.good_steps = good if bad else self.good_steps


class OneTooLate(LossScaler):
    def update(self):
        self.interval += 1
        super().update()
        self.interval -= 1


class ByTwo(LossScaler):
    def __init__(self, init_scale, growth, backoff, interval):
        super().__init__(init_scale, 2.0, 0.5, interval)


class NeverForgets(LossScaler):
    def update(self):
        bad = self.found_inf
        super().update()
        self.found_inf = bad


class NeverGrows(LossScaler):
    def update(self):
        self.good_steps = 0
        super().update()


def test_a_scaler():
    cases = [
        (AlwaysUnscales, "divided by the scale twice"),
        (NeverUnscales, "by the scaled gradient"),
        (NeverSkips, "was not skipped"),
        (ZeroesAndSteps, "but optimizer.step() was called"),
        (NeverSteps, "have not moved"),
        (RemembersGoodSteps, "GradScaler's scale is now"),
        (OneTooLate, "GradScaler's scale is now"),
        (ByTwo, "GradScaler's scale is now"),
        (NeverForgets, "✗"),
        (NeverGrows, "GradScaler's scale is now"),
        (ANSWERS["Scaler"], "has no attribute 'step'"),
    ]
    assert_verdicts(check.lab_04.loss_scaler, [((answer,), hint) for answer, hint in cases])


def clipping(order="unscale clip step update", skip=True, after=False, harm=False, by_value=False):
    def clipped_step(model, optimizer, scaler, max_norm):
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        for call in order.split():
            if call == "unscale":
                scaler.unscale_(optimizer)
            elif call == "clip" and by_value:
                norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
                torch.nn.utils.clip_grad_value_(model.parameters(), max_norm)
            elif call == "clip":
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            elif call == "step":
                scaler.step(optimizer) if skip else optimizer.step()
            else:
                scaler.update()
        if harm:
            for p in model.parameters():
                p.data.zero_()
        return torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]) if after else norm

    return clipped_step


def test_clipping():
    cases = [
        ({"order": "clip unscale step update"}, "Call `unscale_` before clipping"),
        ({"order": "clip step update"}, "Call `unscale_` before clipping"),
        ({"order": "unscale step clip update"}, "as if nothing had been clipped"),
        ({"order": "unscale clip step"}, "at the end of every step"),
        ({"order": "unscale clip update"}, "have not moved"),
        ({"skip": False}, "`scaler.step` skips it"),
        ({"after": True}, "the norm after clipping"),
        ({"by_value": True}, "as long as with gradients"),
        ({"harm": True}, "as long as with gradients"),
    ]
    assert_verdicts(check.lab_04.clipped_step, [((clipping(**mistake),), hint) for mistake, hint in cases])


class AsksByMinimum(RankScaler):
    def unscale_(self, optimizer):
        LossScaler.unscale_(self, optimizer)
        found = torch.tensor(float(self.found_inf))
        dist.all_reduce(found, op=dist.ReduceOp.MIN)
        self.found_inf = found.item() > 0


class TellsRank0(LossScaler):
    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        found = torch.tensor(float(self.found_inf))
        dist.reduce(found, dst=0, op=dist.ReduceOp.MAX)
        self.found_inf = found.item() > 0 if dist.get_rank() == 0 else self.found_inf


class KnowsAlready(LossScaler):
    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        if not self.found_inf:
            found = torch.tensor(0.0)
            dist.all_reduce(found, op=dist.ReduceOp.MAX)
            self.found_inf = found.item() > 0


class SendsGradients(LossScaler):
    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        found = [None] * dist.get_world_size()
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        dist.all_gather_object(found, gradients)
        self.found_inf = any(not g.isfinite().all() for each in found for g in each)


@pytest.mark.usefixtures("nothing_is_left_behind")
def test_a_scaler_of_ranks():
    cases = [
        (LossScaler, "If one rank skips, all must"),
        (AsksByMinimum, "If one rank skips, all must"),
        (TellsRank0, "✗"),
        (SendsGradients, "one number is enough"),
    ]
    assert_verdicts(check.lab_04.rank_scaler, [((answer,), hint) for answer, hint in cases])


def test_a_rank_that_knows_already_and_is_silent_is_named(capfd, monkeypatch, nothing_is_left_behind):
    monkeypatch.setattr(labs, "SECONDS", 4.0)
    assert "Does every rank take part" in verdict(capfd, "rank_scaler", KnowsAlready)


def sharding(policy_of=lambda **dtypes: MixedPrecisionPolicy(**dtypes), layers=True, root=True, harm=None):
    def shard(model, dtype, reduce_dtype):
        policy = policy_of(param_dtype=dtype, reduce_dtype=reduce_dtype)
        if harm == "to":
            model.to(dtype)
        if harm == "zero":
            model.head.weight.data.zero_()
        for layer in model.layers if layers else ():
            fully_shard(layer, mp_policy=policy)
        if root == "bare":
            return fully_shard(model)
        if harm == "autocast":
            forward, device = model.forward, next(model.parameters()).device.type
            model.forward = lambda tokens: torch.autocast(device, dtype=dtype)(forward)(tokens)
        return fully_shard(model, mp_policy=policy) if root else model

    return shard


def test_shards():
    cases = [
        ({"policy_of": lambda param_dtype, **_: MixedPrecisionPolicy(param_dtype)}, "gradients travel in 16"),
        (
            {"policy_of": lambda reduce_dtype, **_: MixedPrecisionPolicy(reduce_dtype=reduce_dtype)},
            "weights travel in 32",
        ),
        ({"policy_of": lambda **_: MixedPrecisionPolicy()}, "weights travel in 32 bits"),
        (
            {"policy_of": lambda **_: MixedPrecisionPolicy(torch.bfloat16, torch.float32)},
            "gradients travel in 32 bits",
        ),
        ({"layers": False}, "a unit for each layer"),
        ({"root": False}, "after its layers"),
        ({"root": "bare"}, "including the one for the rest"),
        ({"harm": "to"}, "the shards are in 16 bits"),
        ({"harm": "zero"}, "sharding should keep them"),
        ({"harm": "autocast"}, "the layers compute in autocast"),
    ]
    assert_verdicts(check.lab_04.shard, [((sharding(**mistake),), hint) for mistake, hint in cases])


def whole(monkeypatch, **changed):
    """The verdict on the training alone, with other pieces."""
    kept = {}
    monkeypatch.setattr(labs, "milestone", lambda tasks, test, reached: kept.update(test=test))
    check.lab_04.milestone(*((ANSWERS | changed)[name] for (name,) in TASKS.values()))
    return check.verdict(kept["test"])


def test_a_training_whose_ranks_do_not_ask_each_other_does_not_survive(monkeypatch, nothing_is_left_behind):
    assert "FSDP2 in fp16, rank 0 of 2: rank 1 overflows" in whole(monkeypatch, RankScaler=LossScaler)


def test_a_training_that_does_not_clip_does_not_follow(monkeypatch):
    line = whole(monkeypatch, clipped_step=clipping(order="unscale step update"))
    assert line.startswith("✗ DDP in bf16, rank 0 of 2: the loss of step")
