"""The exercises of the chapter FSDP in practice."""

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from allranks import launch, memory
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_number
from allranks.trace import trace

SECONDS = 20.0
GPUS, SERVER, PARAMETERS, ROOM = 64, 8, 13e9, 20e9


@exercise
def mesh(answer):
    """`answer`: (replicas, shards) of GPUs that fits, and gathers among the fewest."""
    is_filled(answer, "(replicas, shards)")
    replicas, shards = answer
    assert replicas * shards == GPUS, f"{replicas} × {shards} is {replicas * shards} GPUs; expected {GPUS}."
    held = memory.zero_bytes(PARAMETERS, shards, 3)
    assert held <= ROOM, f"With {shards} shards a GPU holds {held / 1e9:.1f} GB of states, which is too much."
    assert memory.zero_bytes(PARAMETERS, shards // 2, 3) > ROOM, (
        f"{held / 1e9:.1f} GB fit, but so does what half as many shards leave on a GPU."
    )
    servers = shards // SERVER
    return f"{held / 1e9:.0f} GB of states on a GPU, gathered among {shards} GPUs in {servers} servers."


def _sent(policy, **options):
    """Bytes that a rank sends in a step of two units, computed as `policy` says."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    for module in (*model, model):
        fully_shard(module, mp_policy=policy, **options)
    with trace() as counted:
        model(torch.ones(2, 8)).sum().backward()
    return counted.sent


@exercise
def share(answer):
    """`answer`: bytes sent with bf16 weights and fp32 sums, kept whole for backward, by those in fp32."""
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def on_rank(reshard):
        sent = [_sent(p, reshard_after_forward=reshard) for p in (mixed, MixedPrecisionPolicy())]
        return sent[0] / sent[1]

    expected = launch(on_rank, False, world_size=2, timeout=SECONDS)[0]
    is_number(answer)
    assert abs(answer - launch(on_rank, True, world_size=2, timeout=SECONDS)[0]) > 0.01, (
        "That is the share if weights are gathered twice; here they are kept for backward."
    )
    assert abs(answer - 1 / 2) > 0.01, "Only the weights travel in bf16; the gradients are summed in fp32."
    assert abs(answer - expected) < 0.001, (
        f"{answer:g} is not right: how many messages does a unit send, and which of them are halved?"
    )
    return f"{expected:g} of the bytes, as counted on two ranks."
