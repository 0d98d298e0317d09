"""Attention of a split sequence is that of the whole one; what is sent and computed is as predicted."""

import itertools

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor.experimental import _attention as torchs
from torch.utils.flop_counter import FlopCounterMode

from allranks import attention, launch
from allranks.model import GPT, digits, loss_of
from allranks.parallel.context import (
    context_loss,
    gather_attention,
    part,
    ring_attention,
    ring_forward,
    ulysses_attention,
)
from allranks.trace import trace

BATCH, HEADS, SEQUENCE, WIDTH = 2, 8, 48, 4
SHAPE = BATCH, HEADS, SEQUENCE, WIDTH
SPLITS = ("contiguous", "zigzag")


def whole(kv_heads=HEADS, causal=True):
    torch.manual_seed(0)
    q = torch.randn(SHAPE)
    k, v = (torch.randn(BATCH, kv_heads, SEQUENCE, WIDTH) for _ in range(2))
    for t in (q, k, v):
        t.requires_grad_()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    gradient = torch.randn(out.shape)
    out.backward(gradient)
    return [t.detach() for t in (q, k, v, gradient, out)] + [q.grad, k.grad, v.grad]


def compare(tensors, way, causal, split):
    q, k, v, gradient, *expected = (part(t, 2, split) for t in tensors)
    for t in (q, k, v):
        t.requires_grad_()
    with trace() as forward:
        out = way(q, k, v, causal, split)
    with trace() as backward:
        out.backward(gradient)
    for mine, right in zip((out, q.grad, k.grad, v.grad), expected, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-5)
    dist.barrier()
    return forward.sent, backward.sent, forward.calls, backward.calls


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_a_ring_computes_attention_and_its_gradients_in_p_minus_1_hops(world_size):
    sizes = SEQUENCE, world_size, HEADS, WIDTH, 4, BATCH

    def on_rank(cases):
        return [compare(*case) for case in cases]

    cases = [
        (whole(causal=causal), ring_attention, causal, split)
        for causal, split in itertools.product((True, False), SPLITS)
    ]
    for results in launch(on_rank, cases, world_size=world_size):
        for forward, backward, forward_calls, backward_calls in results:
            assert forward == attention.ring_bytes(*sizes)
            assert backward == attention.ring_backward_bytes(*sizes)
            assert forward_calls["send"] == world_size - 1
            assert backward_calls["send"] == 2 * (world_size - 1)


@pytest.mark.parametrize("world_size, kv_heads", [(1, 8), (2, 2), (3, 1), (4, 2), (8, 8)])
def test_an_all_gather_gives_the_same_and_sends_less_backward(world_size, kv_heads):
    sizes = SEQUENCE, world_size, kv_heads, WIDTH, 4, BATCH

    def on_rank(cases):
        return [compare(*case) for case in cases]

    cases = [
        (whole(kv_heads, causal), gather_attention, causal, split)
        for causal, split in itertools.product((True, False), SPLITS)
    ]
    for results in launch(on_rank, cases, world_size=world_size):
        for forward, backward, forward_calls, backward_calls in results:
            assert forward == backward == attention.ring_bytes(*sizes)
            assert (forward_calls, backward_calls) == ({"all_gather": 1}, {"reduce_scatter": 1})


@pytest.mark.parametrize("world_size, kv_heads", [(1, 8), (2, 2), (4, 4), (8, 8)])
def test_ulysses_gives_the_same_by_four_all_to_alls_each_way(world_size, kv_heads):
    sent = attention.ulysses_bytes(SEQUENCE, world_size, HEADS, kv_heads, WIDTH, 4, BATCH)

    def on_rank(cases):
        return [compare(*case) for case in cases]

    cases = [(whole(kv_heads, causal), ulysses_attention, causal, "contiguous") for causal in (True, False)]
    for results in launch(on_rank, cases, world_size=world_size):
        for forward, backward, forward_calls, backward_calls in results:
            assert forward == backward == sent
            assert forward_calls == backward_calls == {"all_to_all": 4}


def test_ulysses_ends_at_the_heads_and_needs_contiguous_parts():
    def on_rank():
        q = torch.randn(1, 2, 4, 4)
        with pytest.raises(ValueError, match="4 ranks cannot share 2 heads evenly"):
            ulysses_attention(q, q, q)
        with pytest.raises(ValueError, match="contiguous"):
            ulysses_attention(q, q, q, split="zigzag")
        with pytest.raises(ValueError, match="4 tokens cannot be cut into 8 equal pieces"):
            part(q, 2, "zigzag")

    launch(on_rank, world_size=4)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("causal", [True, False])
def test_a_rank_computes_its_pairs_and_half_of_its_diagonal_tiles(split, causal):
    def on_rank():
        q, k, v = (torch.randn(1, 1, SEQUENCE // 4, WIDTH) for _ in range(3))
        with FlopCounterMode(display=False) as counted:
            ring_forward(q, k, v, causal, split)
        dist.barrier()
        return counted.get_total_flops()

    pieces = 1 if split == "contiguous" else 2
    tokens = SEQUENCE // 4 // pieces
    masked = pieces * tokens * (tokens - 1) // 2 if causal else 0
    flops = launch(on_rank, world_size=4)
    work = attention.rank_pairs(SEQUENCE, 4, split, causal)
    assert flops == [4 * WIDTH * (pairs + masked) for pairs in work]


def test_the_ring_of_torch_with_the_cpus_kernel_gives_our_output():
    """Its public face, `context_parallel`, knows only the kernels of GPUs; its default is an all-gather."""

    def on_rank():
        tensors = whole()
        q, k, v = (part(t, 2, "zigzag") for t in tensors[:3])
        kernel = vars(torch)["ops"].aten._scaled_dot_product_flash_attention_for_cpu
        with trace() as counted:
            out, _ = torchs._templated_ring_attention(dist.group.WORLD, 2, kernel, q, k, v, is_causal=True)
        ours, _ = ring_forward(q, k, v, True, "zigzag")
        torch.testing.assert_close(out, ours, rtol=1e-5, atol=1e-5)
        dist.barrier()
        return counted.calls

    assert launch(on_rank, world_size=4) == [{"all_gather": 1}] * 4


@pytest.mark.parametrize(
    "way, split",
    [(ring_attention, "zigzag"), (gather_attention, "zigzag"), (ulysses_attention, "contiguous")],
)
def test_the_running_model_has_the_serial_loss_and_gradients(way, split):
    def new_model():
        torch.manual_seed(0)
        return GPT()

    def on_rank(tokens, expected):
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        group = groups[dist.get_rank() // 2]
        model = new_model()
        loss = context_loss(model, tokens, way, split, group)
        loss.backward()
        for name, p in model.named_parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG, group=group)
            torch.testing.assert_close(p.grad, expected[name], rtol=1e-4, atol=1e-6)
        dist.barrier()
        return loss.item()

    tokens, model = digits()[:4], new_model()
    serial = loss_of(model, tokens)
    serial.backward()
    losses = launch(on_rank, tokens, {n: p.grad for n, p in model.named_parameters()}, world_size=4)
    for shares in (losses[:2], losses[2:]):
        assert sum(shares) / 2 == pytest.approx(serial.item(), rel=1e-6)
