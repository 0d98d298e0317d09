"""What the tasks of the lab share: small models, and how close is close enough."""

import math

import torch
import torch.distributed as dist

from allranks.check.labs import drawn
from allranks.model import GPT

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def device_of_rank():
    return "cuda" if "nccl" in dist.get_backend() else "cpu"


def named(dtype):
    return str(dtype).removeprefix("torch.")


def new_gpt(sizes):
    torch.manual_seed(drawn(7))
    return GPT(**sizes)


def joined(tensors):
    return torch.cat([t.detach().flatten().float().cpu() for t in tensors])


def relative(value, expected):
    return float((value - expected).norm() / expected.norm())


def is_about(value, expected, tolerance=0.01):
    return math.isfinite(value) and abs(value - expected) <= tolerance * abs(expected)


STEPS, PLANTED, MAX_NORM, LEARNING_RATE = 6, 2, 0.5, 0.3
