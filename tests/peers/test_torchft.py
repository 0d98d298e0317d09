"""torchft's Streaming DiLoCo, with its quorum and process groups, gives the weights of our fragments."""

from datetime import timedelta
from importlib.util import find_spec

import pytest
import torch
import torch.distributed as dist
from torch import nn

from allranks import launch
from allranks.parallel.local import Fragment, Rounds

pytestmark = pytest.mark.skipif(find_spec("torchft") is None, reason="the peer torchft is not installed")

EVERY, STEPS, RATE, MOMENTUM = 6, 12, 0.7, 0.9  # three fragments: one meets after every second step
WAIT = timedelta(minutes=5)


def new_model():
    """Three fragments, the same on all ranks."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Sequential(nn.Tanh(), nn.Linear(16, 16)), nn.Linear(16, 4))


def train(model, inner, after_step):
    """Train on batches of this rank's own."""
    own = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        x, y = torch.randn(8, 8, generator=own), torch.randn(8, 4, generator=own)
        inner.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        inner.step()
        after_step()
    return [p.detach().clone() for p in model.parameters()]


def ours(delay, keep):
    model = new_model()
    fragments = [Fragment(part.parameters(), RATE, MOMENTUM) for part in model]
    turn = EVERY // len(fragments)
    sends = [turn * (number + 1) - delay - 1 for number in range(len(fragments))]
    rounds = Rounds(fragments, sends, EVERY, delay, keep)
    return train(model, torch.optim.AdamW(model.parameters(), 1e-2), rounds.step)


def theirs(delay, keep):
    """Each rank is a replica group of its own, as a data centre would be."""
    from torchft.coordination import LighthouseServer
    from torchft.local_sgd import DiLoCo
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo

    rank, address = dist.get_rank(), [None]
    if rank == 0:
        lighthouse = LighthouseServer(
            bind="127.0.0.1:0", min_replicas=dist.get_world_size(), heartbeat_timeout_ms=60_000
        )
        address = [lighthouse.address()]
    dist.broadcast_object_list(address)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=WAIT),
        min_replica_size=dist.get_world_size(),
        load_state_dict=lambda state: None,
        state_dict=dict,
        replica_id=str(rank),
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=address[0],
        use_async_quorum=False,
        init_sync=False,
        timeout=WAIT,
        quorum_timeout=WAIT,
        connect_timeout=WAIT,
    )
    model = new_model()
    inner = torch.optim.AdamW(model.parameters(), 1e-2)
    outer = [torch.optim.SGD(part.parameters(), RATE, MOMENTUM, nesterov=True) for part in model]
    options = {"fragment_sync_delay": delay, "fragment_update_alpha": keep}
    with DiLoCo(manager, list(model), inner, outer, EVERY, **options):
        weights = train(model, inner, lambda: None)
    dist.barrier()
    manager.shutdown(wait=False)
    dist.barrier()
    if rank == 0:
        lighthouse.shutdown()
    return weights


@pytest.mark.parametrize("delay, keep", [(0, 0.0), (1, 0.0), (1, 0.5)])
def test_fragments_meet_as_torchfts_do(delay, keep):
    mine = launch(ours, delay, keep, world_size=2)
    for by_us, by_them in zip(mine, launch(theirs, delay, keep, world_size=2, timeout=600)):
        if keep:  # the same mean of own and common weights, in another order of operations
            torch.testing.assert_close(by_us, by_them)
        else:
            assert all(torch.equal(a, b) for a, b in zip(by_us, by_them))
    assert not torch.equal(mine[0][0], mine[1][0])  # the first fragment has trained on since it met
