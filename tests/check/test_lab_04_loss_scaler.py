"""Lab 04, the decisions of GradScaler: right answers in several styles, and what students get wrong."""

import pytest
import solved
from students import judged_on_ranks

from allranks import check

ANSWERS = solved.answers("mixed_precision")
Scaler = ANSWERS["Scaler"]


class LossScaler(Scaler):
    def step(self, optimizer):
        if self.found_inf is None:
            self.unscale_(optimizer)
        if not self.found_inf:
            optimizer.step()

    def update(self):
        if self.found_inf:
            self.value *= self.backoff
            self.good_steps = 0
        else:
            self.good_steps += 1
            if self.good_steps == self.interval:
                self.value *= self.growth
                self.good_steps = 0
        self.found_inf = None


class EarlyReturns(Scaler):
    def step(self, optimizer):
        if self.found_inf is None:
            self.unscale_(optimizer)
        if self.found_inf:
            return None
        return optimizer.step()

    def update(self):
        overflow, self.found_inf = self.found_inf, None
        if overflow:
            self.value, self.good_steps = self.value * self.backoff, 0
            return
        self.good_steps = (self.good_steps + 1) % self.interval
        self.value *= 1 if self.good_steps else self.growth


class ByMatch(Scaler):
    def step(self, optimizer):
        match self.found_inf:
            case None:
                self.unscale_(optimizer)
                self.step(optimizer)
            case False:
                optimizer.step()

    def update(self):
        good = 0 if self.found_inf else self.good_steps + 1
        factor = self.backoff if self.found_inf else self.growth if good >= self.interval else 1.0
        self.value = self.value * factor
        self.good_steps = 0 if good >= self.interval else good
        self.found_inf = None


RIGHT = [(LossScaler,), (EarlyReturns,), (ByMatch,)]
WRONG = {
    "LossScaler": {
        "state reset after an overflow only": (
            "the weights moved by the scaled gradient",
            "            self.good_steps = 0\n        else",
            "            self.good_steps = 0\n            self.found_inf = None\n        else",
            "                self.good_steps = 0\n        self.found_inf = None",
            "                self.good_steps = 0",
        ),
        "unscales twice": (
            "the gradients were divided by the scale twice",
            "if self.found_inf is None:",
            "if True:",
        ),
        "False is taken for None": (
            "the gradients were divided by the scale twice",
            "if self.found_inf is None:",
            "if not self.found_inf:",
        ),
        "never unscales": (
            "the weights moved by the scaled gradient",
            "            self.unscale_(optimizer)",
            "            self.found_inf = False",
        ),
        "steps anyway": ("but the step was not skipped", "if not self.found_inf:", "if True:"),
        "steps only if unscaled before": (
            "but the weights have not moved",
            "        if not self.found_inf:\n",
            "        elif not self.found_inf:\n",
        ),
        "zeroes the gradients and steps": (
            "momentum or weight decay would move the weights",
            "if not self.found_inf:\n            optimizer.step()",
            "if self.found_inf:\n            optimizer.zero_grad(set_to_none=False)\n        optimizer.step()",
        ),
        "drops the gradients and steps": (
            "momentum or weight decay would move the weights",
            "if not self.found_inf:\n            optimizer.step()",
            "if self.found_inf:\n            optimizer.zero_grad()\n        optimizer.step()",
        ),
        "drops the gradients after a step": (
            "to zero them is up to the training loop",
            "            optimizer.step()",
            "            optimizer.step()\n            optimizer.zero_grad()",
        ),
        "updates in step too": (
            "were finite, finite. With an interval of",
            "            optimizer.step()",
            "            optimizer.step()\n            self.update()",
        ),
        "steps after an overflow only": (
            "but the weights have not moved",
            "if not self.found_inf:",
            "if self.found_inf:",
        ),
        "count kept after an overflow": (
            "were finite, inf, finite, inf, nan, finite. With an interval",
            "self.value *= self.backoff\n            self.good_steps = 0",
            "self.value *= self.backoff",
        ),
        "count kept after growth": (
            "were finite, finite, finite, finite, finite, finite. With an",
            "self.value *= self.growth\n                self.good_steps = 0",
            "self.value *= self.growth",
        ),
        "grows a step late": (
            "were finite, finite, finite, finite. With an interval of",
            "self.good_steps == self.interval",
            "self.good_steps > self.interval",
        ),
        "grows a step early": (
            "were finite, finite, finite. With an interval of",
            "self.good_steps == self.interval",
            "self.good_steps == self.interval - 1",
        ),
        "grows every step once it may": (
            "were finite, finite, finite, finite, finite. With an interva",
            "self.value *= self.growth\n                self.good_steps = 0",
            "self.value *= self.growth",
            "self.good_steps == self",
            "self.good_steps >= self",
        ),
        "state kept": ("the weights moved by the scaled gradient", "self.found_inf = None", "pass"),
        "state is False": (
            "the weights moved by the scaled gradient",
            "        self.found_inf = None",
            "        self.found_inf = False",
        ),
        "growth is 2": ("were finite. With an interval of", "*= self.growth", "*= 2.0"),
        "backoff is 0.5": (
            "were finite, finite, finite, finite, finite, nan. With an in",
            "*= self.backoff",
            "*= 0.5",
        ),
        "interval is 2000": (
            "were finite, finite, finite, finite. With an interval of",
            "== self.interval",
            "== 2000",
        ),
        "divided by backoff": (
            "were finite, finite, finite, finite, finite, inf. With an in",
            "*= self.backoff",
            "/= self.backoff",
        ),
        "backoff and growth exchanged": (
            "were finite, finite, finite, finite. With an interval of",
            "*= self.backoff",
            "*= self.growth",
            "self.good_steps == self.interval:\n                self.value *= self.growth",
            "self.good_steps == self.interval:\n                self.value *= self.backoff",
        ),
        "never below 1": (
            "were inf, finite, inf, finite, inf, nan. With an interval of",
            "self.value *= self.backoff",
            "self.value = max(1.0, self.value * self.backoff)",
        ),
        "never above 65536": (
            "were finite, finite, finite, finite. With an interval of",
            "self.value *= self.growth",
            "self.value = min(65536.0, self.value * self.growth)",
        ),
        "whole numbers": (
            "were inf, finite, inf, finite, inf, nan. With an interval of",
            "self.value *= self.backoff",
            "self.value = int(self.value * self.backoff)",
        ),
        "an overflow counts as a step": (
            "were inf, nan, finite, finite, finite, finite. With an inter",
            "self.value *= self.backoff\n            self.good_steps = 0",
            "self.value *= self.backoff\n            self.good_steps += 1",
        ),
        "count from 1 after an overflow": (
            "were finite, inf, nan, finite, finite, finite. With an inter",
            "self.value *= self.backoff\n            self.good_steps = 0",
            "self.value *= self.backoff\n            self.good_steps = 1",
        ),
        "grows without end after an overflow": (
            "were finite, finite, finite, finite, finite, inf. With an in",
            "self.value *= self.backoff",
            "self.value += self.backoff",
        ),
        "backs off in step as well": (
            "were finite, finite, finite, finite, finite, inf. With an in",
            "        if not self.found_inf:\n",
            "        if self.found_inf:\n            self.value *= self.backoff\n        if not self.found_inf:\n",
        ),
        "steps once per group": (
            "the weights moved by the scaled gradient",
            "            optimizer.step()",
            "            for _ in optimizer.param_groups:\n                optimizer.step()",
        ),
    }
}


@pytest.mark.stamped("lab 04")
def test_every_answer_is_told_what_it_is(nothing_is_left_behind):
    judged_on_ranks(check.lab_04.loss_scaler, __name__)
