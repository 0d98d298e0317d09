"""Attention without its scores in memory: torch's kernels that also return the log of their sums.

The CPU's kernel, and on CUDA FlashAttention (Dao et al. 2022), which has not been run in this book. With the
output and the log of the sum of *all* keys, their backward passes give the gradients of the keys that they
are shown.
"""

import torch

from allranks import private


def kernels(q):
    """How to attend and how to go back, as `context.attend` and `attend_backward`, for queries such as `q`.

    None where torch has no such kernel: on other devices, and on CUDA beyond 16 bits, for widths above 256
    and for those that 8 does not divide.
    """
    if q.device.type == "cpu":
        return attend_on_cpu, backward_on_cpu
    half = q.dtype in (torch.float16, torch.bfloat16)
    if q.device.type == "cuda" and half and q.shape[-1] <= 256 and q.shape[-1] % 8 == 0:
        return attend_on_cuda, backward_on_cuda
    return None


def attend_on_cpu(q, k, v, diagonal=False):
    forward, _ = private.attention_with_sums("cpu")
    out, lse = forward(q, k, v, 0.0, diagonal)
    return out, lse[..., None]


def backward_on_cpu(gradient, out, lse, q, k, v, diagonal=False):
    _, backward = private.attention_with_sums("cpu")
    return backward(gradient, q, k, v, out, lse.squeeze(-1).contiguous(), 0.0, diagonal)


def attend_on_cuda(q, k, v, diagonal=False):
    forward, _ = private.attention_with_sums("cuda")
    out, lse, *_ = forward(q, k, v, 0.0, diagonal)
    return out, lse[..., None]


def backward_on_cuda(gradient, out, lse, q, k, v, diagonal=False):
    _, backward = private.attention_with_sums("cuda")
    lse = lse.squeeze(-1).contiguous()
    seed = torch.zeros(2, dtype=torch.uint64, device=q.device)  # of a dropout that there is not
    ragged = None, None, q.shape[2], k.shape[2]  # None: no sequences of different lengths
    return backward(gradient, q, k, v, out, lse, *ragged, 0.0, diagonal, seed, seed)
