"""Attention of packed documents, split over ranks, is that of the documents alone."""

import itertools

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental._context_parallel import _load_balancer as torchs
from torch.utils.flop_counter import FlopCounterMode

from allranks import attention, launch
from allranks.model import GPT, digits
from allranks.parallel import context, packed
from allranks.trace import trace

LENGTHS = [37, 3, 11, 13]
SEQUENCE, WIDTH = 64, 8


def layout(p, split, lengths=LENGTHS):
    return [attention.document_spans(sum(lengths), p, split, lengths, rank) for rank in range(p)]


def alone(heads=4, kv_heads=4, lengths=LENGTHS):
    """q, k, v, the gradient of the output, the output and three gradients: each document by itself."""
    torch.manual_seed(0)
    q, gradient = torch.randn(2, 1, heads, sum(lengths), WIDTH)
    k, v = torch.randn(2, 1, kv_heads, sum(lengths), WIDTH)
    for t in (q, k, v):
        t.requires_grad_()
    documents = zip(*(t.split(lengths, 2) for t in (q, k, v)), strict=True)
    outs = [F.scaled_dot_product_attention(*each, is_causal=True, enable_gqa=True) for each in documents]
    out = torch.cat(outs, 2)
    out.backward(gradient)
    return [t.detach() for t in (q, k, v, gradient, out)] + [q.grad, k.grad, v.grad]


def compare(tensors, spans):
    own = spans[dist.get_rank()]
    q, k, v, gradient, *expected = (packed.take(t, 2, own) for t in tensors)
    for t in (q, k, v):
        t.requires_grad_()
    with trace() as forward:
        out = packed.packed_attention(q, k, v, spans)
    with trace() as backward:
        out.backward(gradient)
    for mine, right in zip((out, q.grad, k.grad, v.grad), expected, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-5)
    dist.barrier()
    return forward.sent, backward.sent


def test_a_mask_of_blocks_gives_what_the_documents_give_alone():
    q, k, v, _, out, *_ = alone()
    masked = F.scaled_dot_product_attention(q, k, v, attn_mask=packed.mask(LENGTHS))
    torch.testing.assert_close(masked, out)
    assert packed.mask(LENGTHS).sum() == sum(attention.document_pairs(SEQUENCE, 1, "contiguous", LENGTHS))


@pytest.mark.parametrize("rules", [None, "nccl"])
@pytest.mark.parametrize("world_size, kv_heads", [(1, 4), (2, 2), (4, 1), (8, 4)])
def test_a_ring_with_documents_gives_the_output_and_gradients_of_the_documents_alone(
    world_size, kv_heads, rules
):
    def on_rank(cases):
        return [compare(*case) for case in cases]

    tensors = alone(kv_heads=kv_heads)
    cases = [(tensors, layout(world_size, split)) for split in attention.DOCUMENT_SPLITS]
    sizes = SEQUENCE, world_size, kv_heads, WIDTH, 4
    for results in launch(on_rank, cases, world_size=world_size, rules=rules):
        for forward, backward in results:  # a ring sends all keys, whatever the mask
            assert forward == attention.ring_bytes(*sizes)
            assert backward == attention.ring_backward_bytes(*sizes)


def test_what_a_rank_computes_is_what_the_arithmetic_counts():
    def on_rank(layouts):
        flops = []
        for spans in layouts:
            q, k, v = torch.randn(3, 1, 1, SEQUENCE // dist.get_world_size(), WIDTH)
            with FlopCounterMode(display=False) as counted:
                packed.packed_forward(q, k, v, spans)
            flops.append(counted.get_total_flops())
        dist.barrier()
        return flops

    p = 4
    layouts = [layout(p, split) for split in attention.DOCUMENT_SPLITS]
    counted = zip(*launch(on_rank, layouts, world_size=p), strict=True)
    for split, spans, flops in zip(attention.DOCUMENT_SPLITS, layouts, counted, strict=True):
        masked = [sum((end - first) * (end - first - 1) // 2 for _, first, end in own) for own in spans]
        pairs = attention.document_pairs(SEQUENCE, p, split, LENGTHS)
        assert list(flops) == [4 * WIDTH * (some + idle) for some, idle in zip(pairs, masked, strict=True)]


@pytest.mark.parametrize("rules", [None, "nccl"])
def test_all_to_alls_inside_and_a_ring_outside_give_the_same(rules):
    tensors = alone(heads=8, kv_heads=4)
    ring_layout = layout(2, "documents")

    def on_rank():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("ring", "heads"))
        ring, heads = mesh["ring"].get_group(), mesh["heads"].get_group()
        own = ring_layout[dist.get_rank(ring)]
        parts = [packed.take(t, 2, own).chunk(2, 2)[dist.get_rank(heads)].contiguous() for t in tensors]
        q, k, v, gradient, *expected = parts
        for t in (q, k, v):
            t.requires_grad_()
        with trace() as forward:
            out = packed.hybrid_attention(q, k, v, ring_layout, heads, ring)
        out.backward(gradient)
        for mine, right in zip((out, q.grad, k.grad, v.grad), expected, strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-5)
        dist.barrier()
        return forward.sent

    swapped = attention.ulysses_bytes(SEQUENCE // 2, 2, 8, 4, WIDTH, 4)
    ringed = attention.ring_bytes(SEQUENCE, 2, 4 // 2, WIDTH, 4)
    assert launch(on_rank, world_size=4, rules=rules) == [swapped + ringed] * 4


def model_and_documents():
    torch.manual_seed(0)
    return GPT(layers=2), [tokens[:length] for tokens, length in zip(digits(), LENGTHS)]


def test_a_model_gives_each_document_what_it_gets_alone_and_a_causal_mask_does_not():
    model, documents = model_and_documents()
    batch, causal = packed.pack(documents), torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).tril()
    with torch.no_grad():
        right = torch.cat([model(each[None])[0] for each in documents])
        torch.testing.assert_close(packed.packed_logits(model, batch, packed.mask(LENGTHS)), right)
        leaky = packed.packed_logits(model, batch, causal)
    torch.testing.assert_close(leaky[: LENGTHS[0]], right[: LENGTHS[0]])
    assert ((leaky - right)[LENGTHS[0] :].abs().amax(-1) > 1e-4).all()


@pytest.mark.parametrize("split", attention.DOCUMENT_SPLITS)
def test_the_loss_divided_by_tokens_and_its_gradients_are_those_of_the_documents_alone(split):
    model, documents = model_and_documents()
    total = sum(F.cross_entropy(model(each[None, :-1])[0], each[1:], reduction="sum") for each in documents)
    loss = total / sum(len(each) - 1 for each in documents)
    loss.backward()
    expected = [p.grad for p in model.parameters()]

    def on_rank(spans):
        model, documents = model_and_documents()
        loss = packed.packed_loss(model, packed.pack(documents), spans)
        loss.backward()
        for p, right in zip(model.parameters(), expected, strict=True):
            dist.all_reduce(p.grad)
            torch.testing.assert_close(p.grad, right, rtol=1e-4, atol=1e-6)
        dist.all_reduce(loss.detach_())
        return loss.item()

    for found in launch(on_rank, layout(4, split), world_size=4, rules="nccl"):
        assert found == pytest.approx(loss.item(), rel=1e-6)


def test_the_pieces_are_those_of_torchs_own_balancer_where_they_divide():
    lengths, p = [16, 8, 40], 4
    [order] = torchs._PerDocumentHeadTailLoadBalancer([lengths], p, "cpu")._generate_indices().tolist()
    by_document = [
        at
        for document in range(len(lengths))
        for spans in layout(p, "documents", lengths)
        for other, first, end in spans
        for at in range(first, end)
        if other == document
    ]
    assert order == by_document
    # Its docstring has rank after rank. Cut into p equal parts, this order gives rank 0 all of document 0.
    assert set(order[: sum(lengths) // p]) == set(range(lengths[0]))


def test_a_tile_is_full_diagonal_or_absent():
    for split, p in itertools.product(attention.DOCUMENT_SPLITS, (2, 4)):
        spans, whole = layout(p, split), packed.mask(LENGTHS)
        for own, others in itertools.product(spans, spans):
            met = {(i, j): diagonal for i, j, diagonal in packed.tiles(own, others)}
            for (i, (_, a, b)), (j, (_, c, d)) in itertools.product(enumerate(own), enumerate(others)):
                tile = whole[a:b, c:d]
                assert tile.any() == ((i, j) in met)
                if met.get((i, j)):
                    assert torch.equal(tile, torch.ones_like(tile).tril())
                elif (i, j) in met:
                    assert tile.all()


def test_context_and_packed_agree_where_there_is_one_document():
    q, k, v = torch.randn(3, 1, 2, 32, 4)

    def on_rank():
        spans = layout(4, "zigzag", [32])
        parts = [context.part(t, 2, "zigzag") for t in (q, k, v)]
        one, other = context.ring_forward(*parts, True, "zigzag"), packed.packed_forward(*parts, spans)
        for mine, right in zip(one, other, strict=True):
            torch.testing.assert_close(mine, right)
        dist.barrier()

    launch(on_rank, world_size=4)
