"""The table *From symptom to cause* of the chapter on debugging: each row is reproduced by a test here."""

import json
import re
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from allranks import hang, launch, private

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "practice" / "debugging.ipynb"


def linear(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(4, 2)


def stopped(program, *args, world_size=2, seconds=3.0):
    with pytest.raises(launch.LaunchError) as caught:
        launch(program, *args, world_size=world_size, timeout=seconds)
    return caught.value


def test_row_1_an_epoch_of_unequal_length_hangs_and_join_ends_it():
    def epoch(join):
        model = DistributedDataParallel(linear())
        batches = 2 + dist.get_rank()
        with model.join(enable=join):
            for _ in range(batches):
                model(torch.ones(3, 4)).sum().backward()
        return batches

    assert launch(epoch, True, world_size=2) == [2, 3]
    error = stopped(epoch, False, seconds=60)
    assert "rank 0 returned while rank 1 was still waiting" in str(error)


def silent_rows():
    """Rows 2, 3, 4, 6, 8, 9 and 11, none of which says anything: what one rank sees of each."""
    rank, seen = dist.get_rank(), {}
    batch = torch.arange(12.0).view(3, 4) * (rank + 1)

    def step(call, model, batch):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        call(batch).square().mean().backward()
        optimizer.step()
        return model.weight.detach()

    ddp = DistributedDataParallel(linear())
    seen["through module"] = step(ddp.module, ddp.module, batch)
    ddp = DistributedDataParallel(linear())
    seen["through ddp"] = step(ddp, ddp.module, batch)

    model, data = linear(), torch.arange(16.0).view(4, 4)
    seen["same data"] = model(data).sum().item()
    seen["own data"] = model(data[rank::2]).sum().item()

    sampler = DistributedSampler(range(16), num_replicas=2, rank=rank)
    seen["without set_epoch"] = [list(sampler) for _ in range(2)]
    seen["with set_epoch"] = [(sampler.set_epoch(epoch), list(sampler))[1] for epoch in range(2)]

    for when in ("before", "after"):
        model = linear()
        early = torch.optim.SGD(model.parameters(), lr=0.1)
        start = model.weight.detach().clone()
        fully_shard(model)
        optimizer = early if when == "before" else torch.optim.SGD(model.parameters(), lr=0.1)
        model(batch).square().mean().backward()
        optimizer.step()
        seen[f"optimizer {when}"] = torch.equal(model.weight.full_tensor(), start)

    gradients = [p.grad for p in model.parameters()]
    seen["norm of shards"] = torch.stack([g.to_local().norm() for g in gradients]).norm().item()
    seen["norm of all"] = torch.stack([g.full_tensor().norm() for g in gradients]).norm().item()
    seen["clip_grad_norm_"] = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor().item()

    for seeds in ("one seed", "own seeds"):
        model = linear(seed=rank if seeds == "own seeds" else 0)
        fully_shard(model)
        seen[seeds] = model.weight.full_tensor().detach()

    model = linear()
    for divide in (1, 4):
        model.zero_grad()
        for part in torch.ones(8, 4).chunk(4):
            (model(part).square().mean() / divide).backward()
        seen[f"divided by {divide}"] = model.weight.grad.clone()
    model.zero_grad()
    model(torch.ones(8, 4)).square().mean().backward()
    seen["whole batch"] = model.weight.grad
    return seen


@pytest.fixture(scope="module")
def silent():
    return launch(silent_rows, world_size=2)


def test_row_2_the_inner_module_trains_each_rank_alone(silent):
    first, second = silent
    assert torch.equal(first["through ddp"], second["through ddp"])
    assert not torch.equal(first["through module"], second["through module"])


def test_row_3_without_a_sampler_all_ranks_have_the_same_loss(silent):
    first, second = silent
    assert first["same data"] == second["same data"]
    assert first["own data"] != second["own data"]


def test_row_4_without_set_epoch_all_epochs_have_one_order(silent):
    for seen in silent:
        assert seen["without set_epoch"][0] == seen["without set_epoch"][1]
        assert seen["with set_epoch"][0] != seen["with set_epoch"][1]


def test_row_5_an_evaluation_through_ddp_waits_for_other_ranks_to_broadcast_buffers():
    def evaluate(inside):
        model = DistributedDataParallel(nn.BatchNorm1d(4))
        if dist.get_rank() == 0:
            (model.module if inside else model)(torch.rand(3, 4))
        dist.barrier()

    assert launch(evaluate, True, world_size=2) == [None, None]
    found = hang.findings(hang.of(stopped(evaluate, False)))
    assert re.search(r"differs: rank 0 entered broadcast.* · rank 1 entered barrier", found[0])


def test_row_6_an_optimizer_that_is_older_than_the_shards_moves_nothing(silent):
    for seen in silent:
        assert seen["optimizer before"] and not seen["optimizer after"]


def test_row_7_a_state_dict_that_rank_0_gathers_alone_hangs():
    def save(ranks):
        model = linear()
        fully_shard(model)
        if dist.get_rank() in ranks:
            get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        dist.barrier()

    assert launch(save, (0, 1), world_size=2) == [None, None]
    found = hang.findings(hang.of(stopped(save, (0,))))
    assert re.search(r"differs: rank 0 entered .* · rank 1 entered barrier", found[0])


def test_row_8_the_norm_of_a_ranks_shards_is_too_small(silent):
    for seen in silent:
        assert seen["norm of shards"] < 0.99 * seen["norm of all"]
        assert seen["clip_grad_norm_"] == pytest.approx(seen["norm of all"])


def test_row_9_own_seeds_make_a_model_that_no_seed_makes(silent):
    whole = linear().weight.detach()
    for seen in silent:
        assert torch.equal(seen["one seed"], whole)
        assert torch.equal(seen["own seeds"][0], whole[0])  # rank 0's shard …
        assert torch.equal(seen["own seeds"][1], linear(seed=1).weight.detach()[1])  # … and rank 1's


def test_row_10_a_micro_batch_that_is_not_sent_is_waited_for():
    def pipeline(sent, expected):
        activation = torch.ones(2)
        for _ in range(sent if dist.get_rank() == 0 else expected):
            dist.send(activation, 1) if dist.get_rank() == 0 else dist.recv(activation, 0)

    assert launch(pipeline, 3, 3, world_size=2) == [None, None]
    error = stopped(pipeline, 2, 3)
    assert len(error.places) == 1 and error.places[0].startswith("rank 1: ")
    assert error.places[0].endswith("in pipeline, waiting in recv")


def test_row_11_losses_that_are_added_make_gradients_too_large(silent):
    for seen in silent:
        torch.testing.assert_close(seen["divided by 4"], seen["whole batch"])
        torch.testing.assert_close(seen["divided by 1"], 4 * seen["whole batch"])


def test_row_12_groups_that_ranks_make_alone_have_one_name_and_other_members(tmp_path):
    def write(folder):
        while private.groups_made() < 2:
            time.sleep(0.01)
        time.sleep(0.4)
        hang.write(folder)

    def pairs(folder):
        writer = threading.Thread(target=write, args=[folder])
        writer.start()
        pair = [0, 1] if dist.get_rank() < 2 else [2, 3]
        group = dist.new_group(pair)  # may wait, or find a rank of the other pair, as chance has it
        writer.join()
        return pair, group is not None

    try:
        launch(pairs, tmp_path, world_size=4, timeout=4)
    except launch.RanksTimedOut as error:
        assert all("new_group" in place for place in error.places)
    dumps = hang.read([tmp_path])
    assert [dump.history.made for dump in dumps.values()] == [2, 2, 2, 2]  # both groups are called 1
    pairs_made = {str(dump.history.groups["1"]) for dump in dumps.values() if "1" in dump.history.groups}
    assert pairs_made <= {"[0, 1]", "[2, 3]"}
    if len(pairs_made) == 2:  # on each side somebody found a partner, right or wrong
        assert hang.findings(dumps)[0].startswith("group 1 is not the same on all ranks: ")


def test_the_chapter_has_a_row_for_each_test():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    rows = re.findall(r"^\| (\d+) \| ", text.partition("| row |")[2], re.MULTILINE)
    tests = re.findall(r"^def test_row_(\d+)_", Path(__file__).read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == tests == [str(number) for number in range(1, 13)]
