"""torch's kernels under their private names do what `context.attend` and `attend_backward` write out."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from allranks import launch
from allranks.parallel import fused
from allranks.parallel.context import attend, attend_backward, gather_attention, part, ring_attention

SHAPE = 2, 3, 20, 8


def tensors(dtype, shape=SHAPE, number=4):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for _ in range(number)]


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("dtype, near", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_a_kernel_computes_a_tile_and_its_gradients_from_the_sums_of_all_keys(dtype, near, diagonal):
    q, k, v, gradient = tensors(dtype)
    first, back = fused.kernels(q)
    out, lse = first(q, k, v, diagonal)
    torch.testing.assert_close((out.float(), lse), attend(q, k, v, diagonal), rtol=near, atol=near)
    assert lse.dtype == torch.float32 and lse.shape == (*SHAPE[:-1], 1)
    more = lse + 1  # as if other keys had been seen as well
    mine = back(gradient, out, more, q, k, v, diagonal)
    written = attend_backward(gradient, out, more, q, k, v, diagonal)
    for one, other in zip(mine, written, strict=True):
        torch.testing.assert_close(one.float(), other, rtol=4 * near, atol=4 * near)


@pytest.mark.parametrize("device, dtype, width", [("meta", torch.float32, 8), ("meta", torch.bfloat16, 8)])
def test_other_devices_have_no_kernel(device, dtype, width):
    assert fused.kernels(torch.empty(1, 1, 1, width, device=device, dtype=dtype)) is None


def test_the_operators_of_cuda_take_what_they_are_given():
    """Without a GPU, on tensors without numbers: shapes and the order of arguments, and nothing more."""
    q, k, v, gradient = (t.to("meta") for t in tensors(torch.bfloat16))
    out, lse = fused.attend_on_cuda(q, k, v, True)
    assert (out.shape, lse.shape, lse.dtype) == (q.shape, (*SHAPE[:-1], 1), torch.float32)
    gradients = fused.backward_on_cuda(gradient, out, lse, q, k, v, True)
    assert [t.shape for t in gradients] == [q.shape] * 3


@pytest.mark.parametrize("way", [ring_attention, gather_attention])
def test_parts_in_16_bits_are_merged_in_32(way):
    shape = 1, 2, 256, 8

    def on_rank():
        q, k, v = (part(t, 2, "zigzag") for t in tensors(torch.bfloat16, shape, 3))
        return way(q, k, v, True, "zigzag")

    q, k, v = (t.float() for t in tensors(torch.bfloat16, shape, 3))
    exact = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    once = F.scaled_dot_product_attention(*tensors(torch.bfloat16, shape, 3), is_causal=True)
    pieces = [None] * 16
    for rank, out in enumerate(launch(on_rank, world_size=8)):
        pieces[rank], pieces[15 - rank] = out.chunk(2, 2)
    error, unavoidable = (
        (each.float() - exact).square().mean().sqrt() for each in (torch.cat(pieces, 2), once)
    )
    assert error < 1.5 * unavoidable


class Largest(TorchDispatchMode):
    """The most elements of any tensor that an operator returns."""

    elements = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.elements = max([self.elements, *sizes])
        return result


@pytest.mark.parametrize("way", [ring_attention, gather_attention])
def test_no_rank_ever_holds_scores_or_a_mask(way):
    tokens = 2048

    def on_rank():
        q, k, v = (torch.randn(1, heads, tokens // 4, 2) for heads in (2, 1, 1))
        q.requires_grad_()
        with Largest() as largest:
            way(q, k, v, True, "zigzag").sum().backward()
        return largest.elements

    a_tile_of_scores = 2 * (tokens // 8) ** 2
    assert max(launch(on_rank, world_size=4)) < a_tile_of_scores
