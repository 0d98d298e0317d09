"""The exercises of the chapter Choosing a layout."""

import torch
from torch.distributed.device_mesh import init_device_mesh

from allranks import hardware, launch, plan, transformer
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_number
from allranks.model import GPT, digits, loss_of

SECONDS = 30.0
A100 = hardware.ACCELERATORS["a100-80gb"]
SELENE = {"inside": hardware.LINKS["nvlink-3"], "between": hardware.LINKS["infiniband-hdr"]}
MEGATRON = {**SELENE, **plan.IN_2021}
GPT_3, DEVICES, BATCH = transformer.PRESETS["gpt3-175b"], 64, 128


@exercise
def gpt3_on_64(answer):
    """`answer`: a `Layout` of GPT-3 on 64 A100s, 128 sequences a step, 5 % from the fastest at most."""
    is_filled(answer, "a plan.layout(…)")
    assert answer.devices == DEVICES, (
        f"tp · cp · pp · dp is {answer.devices}; expected {DEVICES}, the number of devices."
    )
    assert answer.batch == BATCH, (
        f"dp · microbatch · microbatches is {answer.batch}; expected {BATCH}, the sequences of a step."
    )
    priced = plan.price(GPT_3, answer, A100, **SELENE)
    held = f"{priced.memory.total / 1e9:.0f} GB"
    most = max(
        ("states", "activations", "recomputed", "buffers"), key=lambda part: getattr(priced.memory, part)
    )
    assert priced.fits, f"It needs {held} on a device of 80 GB. The largest part: {most}."
    best = plan.plans(GPT_3, A100, DEVICES, BATCH, at_most={"cp": 1}, **SELENE)[0]
    after = next(name for name in priced.parts.largest() if name != "compute")
    assert priced.seconds <= 1.05 * best.seconds, (
        f"It fits, with {held}, and takes {priced.seconds / best.seconds:.2f} times as long as the "
        f"fastest. The largest part after compute: {after}."
    )
    took = f"{priced.seconds:.1f} s a step, MFU {priced.mfu:.0%}"
    return f"{held}, {took}; the fastest takes {best.seconds:.1f} s."


def _model():
    torch.manual_seed(0)
    return GPT(layers=1, hidden=16, heads=2)


@exercise
def right_group(answer):
    """`answer(model, mesh)` averages gradients over the ranks that hold the same part of the weights."""
    tokens = digits()[:16]
    model = _model()
    loss_of(model, tokens).backward()
    expected = model.layers[0].up.weight.grad.chunk(2)  # column-parallel: rows of the weight

    def on_rank():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        mine = _model()
        loss_of(mine, tokens.chunk(2)[mesh["dp"].get_local_rank()]).backward()
        part = mine.layers[0].up
        cut = part.weight.grad.chunk(2)[mesh["tp"].get_local_rank()].clone()
        part.weight = torch.nn.Parameter(torch.zeros_like(cut))
        part.weight.grad = cut
        answer(mine, mesh)
        return part.weight.grad, mine.head.weight.grad

    for rank, (cut, head) in enumerate(launch(on_rank, world_size=4, timeout=SECONDS)):
        assert torch.allclose(head, model.head.weight.grad, atol=1e-6), (
            f"Rank {rank}'s gradient of the head differs from the whole batch's."
        )
        assert torch.allclose(cut, expected[rank % 2], atol=1e-6), (
            f"Rank {rank}'s part of a split matrix has the wrong gradient: which ranks hold the same part?"
        )
    return "On all four ranks, each part is averaged only with its copies."


@exercise
def faster_network(answer):
    """`answer`: by how many percent the trillion's step gets shorter if the network is 4 times as fast."""
    model = transformer.PRESETS["megatron-1t"]
    layout = plan.layout(tp=8, pp=64, dp=6, zero_stage=0, microbatches=512, recomputation="full")
    slow = MEGATRON["between"]
    fast = hardware.Link("4 times as fast", slow.α, 4 * slow.bandwidth, "", "")
    before, after = (
        plan.price(model, layout, A100, **{**MEGATRON, "between": link}).seconds for link in (slow, fast)
    )
    expected = 100 * (1 - after / before)
    is_number(answer)
    assert answer < 2 * expected, "Which parts of the step use that network at all? Print them."
    assert abs(answer - expected) <= 0.3, (
        f"{answer:g} % is not right: compare what `plan.price` says with both links."
    )
    return f"{expected:.1f} %: hardly any of a step is spent on the network between nodes."
