"""What ranks receive between training and generation: the published formulas, and sets of slices."""

import pytest

from allranks import inference


def slices(part, parts, of):
    """The training slices, of `of`, in one of `parts` slices for generation."""
    return set(range(part * of // parts, (part + 1) * of // parts))


@pytest.mark.parametrize("ranks, parts", [(4, 2), (8, 2), (8, 4), (6, 3), (12, 1), (5, 5)])
def test_a_regrouped_rank_keeps_its_slice_and_receives_the_rest(ranks, parts):
    groups = inference.generation_groups(ranks, parts)
    assert sorted(rank for group in groups for rank in group) == list(range(ranks))
    received = inference.reshard("regrouped", ranks, 1, 3, parts)
    for group in groups:
        for part, rank in enumerate(group):
            needs = slices(part, parts, ranks)
            assert rank in needs
            assert len(needs - {rank}) / ranks == pytest.approx(received.received)
            assert len(needs) / ranks == pytest.approx(received.peak)


def test_neighbours_store_what_generation_does_not_use():
    held = [slices(rank % 2, 2, 4) | {rank} for rank in range(4)]
    assert [len(each) for each in held] == [2, 3, 3, 2]


@pytest.mark.parametrize(
    "way, received", [("all ranks", 15 / 16), ("same groups", 7 / 8), ("regrouped", 3 / 8)]
)
def test_each_way_receives_less_than_the_one_before(way, received):
    assert inference.reshard(way, 8, 1, 2, 2).received == received


def test_pipelines_count_like_slices():
    assert inference.reshard("regrouped", 4, 2, 1, 2, 1) == inference.reshard("regrouped", 8, 1, 1, 2)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: inference.generation_groups(4, 3), "parts must divide ranks, 4, not be 3"),
        (lambda: inference.reshard("regrouped", 4, 1, 1, 3), "generation_tensor must divide"),
        (lambda: inference.reshard("regrouped", 4, 2, 1, 2, 4), "generation_pipeline must divide"),
        (lambda: inference.reshard("by hand", 4, 1, 1, 2), "way must be one of 'all ranks', 'same groups'"),
        (lambda: inference.reshard("all ranks", 4, 1, 0, 2), "replicas must be a whole number"),
    ],
)
def test_what_is_wrong_is_said(call, said):
    with pytest.raises(ValueError, match=said):
        call()
