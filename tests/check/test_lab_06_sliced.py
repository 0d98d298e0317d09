"""Lab 06, tensor-parallel decode on two ranks: right answers in several styles, and what students get wrong."""

import solved
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: F401, for the edits
from students import judged_on_ranks

from allranks import check

ANSWERS = solved.answers("serving")
keep, attention = ANSWERS["keep"], ANSWERS["attention"]


def cut(layer):
    for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):
        keep(linear, 0)
    for linear in (layer.mlp.gate_proj, layer.mlp.up_proj):
        keep(linear, 0)
    keep(layer.self_attn.o_proj, 1)
    keep(layer.mlp.down_proj, 1)


def cut_by_name(layer):
    for name, module in layer.named_modules():
        if isinstance(module, torch.nn.Linear):
            keep(module, 1 if name.endswith(("o_proj", "down_proj")) else 0)


def cut_by_narrow(layer):
    rank, size = dist.get_rank(), dist.get_world_size()

    def part(linear, dim):
        length = linear.weight.shape[dim] // size
        data = linear.weight.data.narrow(dim, rank * length, length).contiguous().clone()
        linear.weight = torch.nn.Parameter(data, requires_grad=False)

    for module, names, dim in (
        (layer.self_attn, "q_proj k_proj v_proj", 0),
        (layer.self_attn, "o_proj", 1),
        (layer.mlp, "gate_proj up_proj", 0),
        (layer.mlp, "down_proj", 1),
    ):
        for name in names.split():
            part(getattr(module, name), dim)


def one_layer(layer, x, past):
    y, past = attention(layer.self_attn, layer.input_layernorm(x), past)
    dist.all_reduce(y)
    x = x + y
    y = layer.mlp(layer.post_attention_layernorm(x))
    dist.all_reduce(y)
    return x + y, past


def by_functional(layer, x, past):
    from torch.distributed import _functional_collectives as funcol

    def total(y):
        return funcol.wait_tensor(funcol.all_reduce(y, "sum", dist.group.WORLD))

    y, past = attention(layer.self_attn, layer.input_layernorm(x), past)
    x = x + total(y)
    return x + total(layer.mlp(layer.post_attention_layernorm(x))), past


def by_gather(layer, x, past):
    def summed(y):
        parts = [torch.empty_like(y) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, y.contiguous())
        return sum(parts[1:], start=parts[0])

    y, past = attention(layer.self_attn, layer.input_layernorm(x), past)
    x = x + summed(y)
    return x + summed(layer.mlp(layer.post_attention_layernorm(x))), past


def in_place(layer, x, past):
    y, past = attention(layer.self_attn, layer.input_layernorm(x), past)
    dist.all_reduce(y)
    x += y
    y = layer.mlp(layer.post_attention_layernorm(x))
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    return x.add_(y), past


RIGHT = [
    (cut, one_layer, attention),
    (cut_by_name, by_functional, attention),
    (cut_by_narrow, by_gather, attention),
    (cut, in_place, attention),
]
WRONG = {
    "cut": {
        "o_proj by outputs": ("RuntimeError", "o_proj, 1", "o_proj, 0"),
        "down_proj by outputs": ("RuntimeError", "down_proj, 1", "down_proj, 0"),
        "q, k, v by inputs": (
            "RuntimeError",
            "v_proj):\n        keep(linear, 0)",
            "v_proj):\n        keep(linear, 1)",
        ),
        "q_proj not cut": ("RuntimeError", "(layer.self_attn.q_proj, ", "("),
        "k_proj not cut": ("RuntimeError", "layer.self_attn.k_proj, ", ""),
        "v_proj not cut": ("RuntimeError", ", layer.self_attn.v_proj)", ")"),
        "up_proj not cut": ("RuntimeError", ", layer.mlp.up_proj)", ",)"),
        "attention alone": (
            "half of each is enough",
            "    for linear in (layer.mlp.gate_proj, layer.mlp.up_proj):\n        keep(linear, 0)\n",
            "",
            "    keep(layer.mlp.down_proj, 1)\n",
            "",
        ),
        "mlp alone": (
            "half of each is enough",
            "    for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):\n        keep(linear, 0)\n",
            "",
            "    keep(layer.self_attn.o_proj, 1)\n",
            "",
        ),
        "cut twice": (
            "RuntimeError",
            "    keep(layer.mlp.down_proj, 1)",
            "    keep(layer.mlp.down_proj, 1)\n    keep(layer.self_attn.v_proj, 0)",
        ),
        "zeros instead of a cut": (
            "half of each is enough",
            "    for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):\n        keep(linear, 0)\n",
            "    for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):\n        h = len(linear.weight) // 2\n        linear.weight.data[h * (1 - dist.get_rank()) : h * (2 - dist.get_rank())] = 0\n",
            "    keep(layer.self_attn.o_proj, 1)\n",
            "    layer.self_attn.o_proj.weight.data.div_(1)\n",
        ),
        "views of the whole": (
            "a view keeps the whole matrix alive",
            "    keep(layer.mlp.down_proj, 1)",
            "    w = layer.mlp.down_proj.weight\n    layer.mlp.down_proj.weight = torch.nn.Parameter(w.data.chunk(2, 1)[dist.get_rank()], requires_grad=False)",
        ),
        "the other rank's half": (
            "the rest is as in `forward`",
            "    keep(layer.mlp.down_proj, 1)",
            "    w = layer.mlp.down_proj.weight\n    layer.mlp.down_proj.weight = torch.nn.Parameter(w.data.chunk(2, 1)[1 - dist.get_rank()].clone(), requires_grad=False)",
        ),
        "norms cut": (
            "RuntimeError",
            "    keep(layer.mlp.down_proj, 1)",
            "    keep(layer.mlp.down_proj, 1)\n    keep(layer.input_layernorm, 0)",
        ),
        "rank 0's half": (
            "the rest is as in `forward`",
            "    for linear in (layer.mlp.gate_proj, layer.mlp.up_proj):\n        keep(linear, 0)",
            "    for linear in (layer.mlp.gate_proj, layer.mlp.up_proj):\n        linear.weight = torch.nn.Parameter(linear.weight.data.chunk(2)[0].clone(), requires_grad=False)",
        ),
        "every second column": (
            "the rest is as in `forward`",
            "    for linear in (layer.mlp.gate_proj, layer.mlp.up_proj):\n        keep(linear, 0)\n",
            "    for linear in (layer.mlp.gate_proj,):\n        linear.weight = torch.nn.Parameter(linear.weight.data[dist.get_rank()::2].clone(), requires_grad=False)\n    keep(layer.mlp.up_proj, 0)\n",
        ),
        "heads interleaved": (
            "the rest is as in `forward`",
            "    keep(layer.self_attn.o_proj, 1)",
            "    w = layer.self_attn.o_proj.weight\n    layer.self_attn.o_proj.weight = torch.nn.Parameter(w.data[:, dist.get_rank()::2].clone(), requires_grad=False)",
        ),
        "gate_proj not cut": ("TypeError", "(layer.mlp.gate_proj, ", "("),
    },
    "one_layer": {
        "no sum at all": (
            "rank sums: each has half of the heads",
            "    dist.all_reduce(y)\n",
            "",
        ),
        "no sum behind attention": (
            "s halves are not summed before the feed-forward reads them",
            "past)\n    dist.all_reduce(y)",
            "past)",
        ),
        "no sum behind the mlp": (
            "differ from one process's: the feed-forward",
            "(x))\n    dist.all_reduce(y)",
            "(x))",
        ),
        "x summed too": (
            "sum y alone",
            "    x = x + y\n",
            "    x = x + y\n    dist.all_reduce(x)\n",
        ),
        "summed after adding x": (
            "sum y alone",
            "    dist.all_reduce(y)\n    return x + y, past",
            "    y = x + y\n    dist.all_reduce(y)\n    return y, past",
        ),
        "mean": (
            "the halves are averaged",
            "    dist.all_reduce(y)\n",
            "    dist.all_reduce(y)\n    y /= dist.get_world_size()\n",
        ),
        "maximum": (
            "the rest is as in `forward`",
            "all_reduce(y)",
            "all_reduce(y, op=dist.ReduceOp.MAX)",
        ),
        "to rank 0": (
            "the rest is as in `forward`",
            "all_reduce(y)",
            "reduce(y, 0)",
        ),
        "from rank 0": (
            "rank sums: each has half of the heads",
            "all_reduce(y)",
            "broadcast(y, 0)",
        ),
        "not waited for": (
            "was a sum read before its",
            "all_reduce(y)",
            "all_reduce(y, async_op=True)",
        ),
        "x not added": (
            "attention's output is not added",
            "    x = x + y\n",
            "    x = y\n",
        ),
        "x not added at the end": (
            "feed-forward's output is not added",
            "return x + y",
            "return y",
        ),
        "one sum at the end": (
            "the rest is as in `forward`",
            "    dist.all_reduce(y)\n    x = x + y\n    y = layer.mlp(layer.post_attention_layernorm(x))\n    dist.all_reduce(y)\n    return x + y, past",
            "    z = x + y\n    y = y + layer.mlp(layer.post_attention_layernorm(z))\n    dist.all_reduce(y)\n    return x + y, past",
        ),
        "old past returned": ("it needs only those of its own heads", "y, past = att", "y, _ = att"),
        "past of all heads gathered": (
            "RuntimeError",
            "    return x",
            "    parts = [torch.empty_like(past) for _ in range(dist.get_world_size())]\n    dist.all_gather(parts, past)\n    past = torch.cat(parts, 2)\n    return x",
        ),
        "past summed": (
            "the rest is as in `forward`",
            "    return x",
            "    dist.all_reduce(past)\n    return x",
        ),
        "norm after attention forgotten": (
            "without `post_attention_layernorm`",
            "layer.post_attention_layernorm(x)",
            "x",
        ),
        "first norm forgotten": (
            "without `input_layernorm`",
            "layer.input_layernorm(x)",
            "x",
        ),
        "norms exchanged": (
            "the rest is as in `forward`",
            "post_attention_layernorm(x)",
            "input_layernorm(x)",
        ),
        "weights gathered": (
            "two all-reduces of the new tokens in each layer are enough",
            "    y = layer.mlp(layer.post_attention_layernorm(x))\n    dist.all_reduce(y)\n",
            "    w = []\n    for linear, dim in ((layer.mlp.gate_proj, 0), (layer.mlp.up_proj, 0), (layer.mlp.down_proj, 1)):\n        parts = [torch.empty_like(linear.weight) for _ in range(dist.get_world_size())]\n        dist.all_gather(parts, linear.weight.data)\n        w.append(torch.cat(parts, dim))\n    z = layer.post_attention_layernorm(x)\n    y = F.linear(F.silu(F.linear(z, w[0])) * F.linear(z, w[1]), w[2])\n",
        ),
        "summed in 16 bits": (
            "the rest is as in `forward`",
            "    dist.all_reduce(y)\n",
            "    z = y.bfloat16()\n    dist.all_reduce(z)\n    y = z.to(y.dtype)\n",
        ),
        "sent twice": (
            "two all-reduces of the new tokens in each layer are enough",
            "(x))\n    dist.all_reduce(y)\n",
            "(x))\n    dist.all_reduce(y)\n    dist.all_reduce(y.clone())\n",
        ),
        "hard-coded two ranks doubled": (
            "the rest is as in `forward`",
            "    dist.all_reduce(y)\n    x",
            "    y *= 2\n    x",
        ),
    },
}


def test_every_answer_is_told_what_it_is(nothing_is_left_behind):
    judged_on_ranks(check.lab_06.sliced, __name__)
