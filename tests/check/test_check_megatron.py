"""The checks of the chapter Megatron say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch.nn.functional as F
from verdicts import verdict

from allranks.check import megatron
from allranks.parallel.tensor import Column, Row, f


def f_once(x, gate, up, down):
    x = f(x)
    return Row(down)(F.silu(Column(gate)(x)) * Column(up)(x))


def f_twice(x, gate, up, down):
    return Row(down)(F.silu(Column(gate)(f(x))) * Column(up)(f(x)))


def without_f(x, gate, up, down):
    return Row(down)(F.silu(Column(gate)(x)) * Column(up)(x))


def test_a_gated_mlp_needs_one_f(capsys):
    assert verdict(capsys, megatron.gated, f_once).startswith("✓")
    assert "the backward pass takes 2 collectives" in verdict(capsys, megatron.gated, f_twice)
    assert "gradient of x is not" in verdict(capsys, megatron.gated, without_f)


@pytest.mark.parametrize(
    "answer, says",
    [
        (352, "✓"),
        (None, "None"),
        (176, "two bytes"),
        (402.65, "(t−1)/t"),
        (33822, "one layer"),
        (1, "is not right"),
    ],
)
def test_what_a_layer_of_gpt_3_sends(capsys, answer, says):
    assert says in verdict(capsys, megatron.megabytes_sent, answer)
