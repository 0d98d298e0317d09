"""Pieces of tensors load into any layout, and a checkpoint is kept whole or not at all."""

import json
import time

import pytest
import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh

from allranks import launch
from allranks.launch import RankFailed
from allranks.model import GPT
from allranks.parallel import checkpoint
from allranks.parallel.combine import Part
from allranks.parallel.tensor import parallelize

LENGTHS = st.tuples(st.integers(0, 6), st.integers(1, 6))
BOXES = st.tuples(LENGTHS, LENGTHS).map(lambda dims: tuple(map(list, zip(*dims))))


def cells(offsets, sizes):
    rows, columns = (range(a, a + n) for a, n in zip(offsets, sizes))
    return torch.tensor([[(12 * row + column) for column in columns] for row in rows])


@given(BOXES, BOXES)
def test_an_overlap_is_what_two_boxes_share(saved, wanted):
    """Each cell of the plane has a number; slices of both boxes pick the same ones, and all of them."""
    one, other = cells(*saved), cells(*wanted)
    shared = set(one.flatten().tolist()) & set(other.flatten().tolist())
    found = checkpoint.overlap(saved, wanted)
    if found is None:
        assert not shared
    else:
        there, here = found
        assert torch.equal(one[there], other[here])
        assert set(one[there].flatten().tolist()) == shared


def test_a_number_without_dims_overlaps_itself():
    assert checkpoint.overlap(([], []), ([], [])) == ((), ())


def small_model():
    return GPT(layers=2, hidden=16)


def reference():
    """Of the model of one process, by name: tensors of which each number is another."""
    model, tensors, start = small_model(), {}, 0
    for name, _, t in checkpoint.named_states(model, torch.optim.AdamW(model.parameters())):
        tensors[name] = torch.arange(start, start + t.numel()).view_as(t).float()
        start += t.numel()
    assert start < 2**24  # all of them exact
    return tensors


def states(pp, tp):
    mesh = init_device_mesh("cpu", (pp, tp), mesh_dim_names=("pp", "tp"))
    stage, layers = dist.get_rank(mesh["pp"].get_group()), mesh["tp"].get_group()
    part = Part(parallelize(small_model(), layers), stage, pp)
    optimizer = torch.optim.AdamW(part.parameters())
    pieces = checkpoint.pieces_of(part, optimizer, layers, stage)
    return pieces, checkpoint.dtensors_of(part, optimizer, mesh["tp"], stage)


def expected(pieces):
    whole = reference()
    for name, (offsets, t) in pieces.items():
        yield t, whole[name][tuple(slice(a, a + n) for a, n in zip(offsets, t.shape))]


@torch.no_grad()
def write(folder, pp, tp):
    pieces, dtensors = states(pp, tp)
    for t, numbers in expected(pieces):
        t.copy_(numbers)
    checkpoint.save(pieces, folder / "ours")
    dcp.save(dtensors, checkpoint_id=folder / "dcp")


def read(folder, pp, tp):
    answers = []
    for how in ("ours", "dcp"):
        pieces, dtensors = states(pp, tp)
        if how == "ours":
            checkpoint.load(pieces, folder / how)
        else:
            dcp.load(dtensors, checkpoint_id=folder / how)
        answers.append(all(torch.equal(t, numbers) for t, numbers in expected(pieces)))
    return answers


def test_two_by_two_ranks_save_and_other_layouts_load(tmp_path):
    launch(write, tmp_path, 2, 2)
    for pp, tp in ((2, 2), (1, 4), (2, 1), (1, 1)):
        assert launch(read, tmp_path, pp, tp, world_size=pp * tp) == [[True, True]] * (pp * tp)


def test_equal_pieces_are_written_once(tmp_path):
    launch(write, tmp_path, 1, 4)
    index = json.loads((tmp_path / "ours" / "index.json").read_text())
    assert len(index["layers.0.norm_1.weight"]) == 1 and len(index["layers.0.up.weight"]) == 4
    files = sum(file.stat().st_size for file in (tmp_path / "ours").glob("*.safetensors"))
    numbers = sum(4 * t.numel() for t in reference().values())
    assert numbers < files < 1.5 * numbers  # names and shapes are in the files, too


def keep_number(folder, number, fails=False):
    def write(path):
        path.mkdir(exist_ok=True)
        dist.barrier()
        (path / f"rank_{dist.get_rank()}").write_bytes(bytes([number]) * 100)
        if fails:
            raise OSError("the disk is full")

    checkpoint.keep(write, folder / f"step_{number}")


def test_a_checkpoint_is_kept_whole_or_not_at_all(tmp_path):
    assert checkpoint.newest(tmp_path) is None
    launch(keep_number, tmp_path, 9, world_size=2)
    told = r"step_10 is not complete \(rank 0: OSError: the disk is full · rank 1: OSError: the disk is f"
    with pytest.raises(RankFailed, match=told):
        launch(keep_number, tmp_path, 10, fails=True, world_size=2)
    assert checkpoint.newest(tmp_path).name == "step_9"
    launch(keep_number, tmp_path, 10, world_size=2)  # over what is left of the first try
    assert checkpoint.newest(tmp_path).name == "step_10"  # and not the last one in the alphabet


def keep_with(folder, act):
    """Keep "step_2" with `act(path, rank)` as what writes; return the error that this rank gets, or None."""

    def write(path):
        return act(path, dist.get_rank())

    try:
        checkpoint.keep(write, folder / "step_2")
    except RuntimeError as error:
        return str(error)


def put(path, rank):
    path.mkdir(exist_ok=True)
    (path / f"rank_{rank}").write_bytes(bytes([rank]) * 10)


def fail_on_rank_1(path, rank):
    if rank == 1:
        raise OSError("the disk is full")
    put(path, rank)


def end_late_on_rank_1(path, rank):
    time.sleep(rank)
    put(path, rank)


def save_where_rank_1_cannot(path, rank):
    if rank == 1:
        safetensors.torch.save_file = None
    checkpoint.save({"x": ([rank], torch.ones(1))}, path)


def hash_where_rank_1_cannot(path, rank):
    put(path, rank)
    if rank == 1:
        checkpoint.digest = None


def return_what_does_not_pickle(path, rank):
    put(path, rank)
    return lambda: rank


@pytest.mark.parametrize(
    "act, what",
    [
        (fail_on_rank_1, "OSError: the disk is full"),
        (save_where_rank_1_cannot, "TypeError: 'NoneType' object is not callable"),
        (hash_where_rank_1_cannot, "TypeError: 'NoneType' object is not callable"),
    ],
)
def test_a_failure_on_one_rank_is_told_on_all_and_nothing_is_lost(tmp_path, act, what):
    launch(keep_number, tmp_path, 1, world_size=3)
    told = launch(keep_with, tmp_path, act, world_size=3, timeout=30)
    assert told == [f"step_2 is not complete (rank 1: {what})"] * 3
    assert checkpoint.newest(tmp_path).name == "step_1" and not (tmp_path / "step_2").exists()
    assert launch(keep_with, tmp_path, put, world_size=3) == [None] * 3
    assert checkpoint.newest(tmp_path).name == "step_2"


@pytest.mark.parametrize("act", [end_late_on_rank_1, return_what_does_not_pickle])
def test_ranks_need_not_end_their_writing_together(tmp_path, act):
    assert launch(keep_with, tmp_path, act, world_size=2, timeout=30) == [None] * 2
    hashes = json.loads((tmp_path / "step_2" / "hashes.json").read_text())
    assert sorted(hashes) == ["rank_0", "rank_1"] and not checkpoint.damaged(tmp_path / "step_2")


def test_a_checkpoint_of_that_name_is_not_overwritten(tmp_path):
    launch(keep_number, tmp_path, 2, world_size=2)
    told = launch(keep_with, tmp_path, put, world_size=2, timeout=30)
    assert len(set(told)) == 1 and told[0].startswith("step_2 is not complete (rank 0: OSError")
    assert (tmp_path / "step_2" / "rank_1").read_bytes() == bytes([2]) * 100
    assert not checkpoint.damaged(tmp_path / "step_2")


def test_a_flipped_bit_and_a_missing_file_are_damage(tmp_path):
    launch(keep_number, tmp_path, 1, world_size=2)
    launch(keep_number, tmp_path, 2, world_size=2)
    file = tmp_path / "step_2" / "rank_1"
    content = bytearray(file.read_bytes())
    content[50] ^= 1
    file.write_bytes(content)
    assert checkpoint.damaged(tmp_path / "step_2") == ["rank_1"]
    assert checkpoint.newest(tmp_path).name == "step_1"
    file.unlink()
    assert checkpoint.damaged(tmp_path / "step_2") == ["rank_1"]


def flipped(ranks):
    torch.manual_seed(0)
    model = small_model()
    if dist.get_rank() in ranks:
        model.head.weight.data.view(torch.int32)[0, 0] ^= 1
    return checkpoint.disagreeing(model.state_dict())


@pytest.mark.parametrize("ranks", [[], [2], [0]])
def test_the_rank_with_other_bits_is_found_by_all(ranks):
    found = {"head.weight": ranks} if ranks else {}
    assert launch(flipped, ranks, world_size=3) == [found] * 3


def own_key():
    return {f"rank {dist.get_rank()}": torch.ones(2)}


def test_a_key_of_a_rank_that_did_not_save_is_missed(tmp_path):
    launch(lambda: dcp.save(own_key(), checkpoint_id=tmp_path), world_size=2)
    with pytest.raises(RankFailed, match="rank 2"):
        launch(lambda: dcp.load(own_key(), checkpoint_id=tmp_path), world_size=3)
