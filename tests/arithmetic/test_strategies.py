"""Six ways to cut a network, against closed forms and against what the chapter's ranks held and sent."""

import json
from pathlib import Path

import pytest

from allranks import collectives, strategies

PAGE = Path(__file__).resolve().parents[2] / "notebooks" / "foundations" / "parallelism_strategies.ipynb"
NAMES = dict.fromkeys(strategies.STRATEGIES)
NAMES = {**{name: name for name in strategies.STRATEGIES}, "sharded": "sharded states"}


def cells():
    return {cell["id"]: cell for cell in json.loads(PAGE.read_text(encoding="utf-8"))["cells"]}


def test_what_is_held_and_sent_is_what_the_chapter_counted_on_ranks():
    rows = "".join(cells()["table"]["outputs"][0]["text"]).splitlines()[1:]
    for strategy, name in NAMES.items():
        row = next(row for row in rows if row.startswith(f"{name} "))
        held, sent = (int(each.replace(",", "")) for each in row.removeprefix(name).split()[:2])
        assert strategies.states_bytes(strategy) == held
        assert max(strategies.sent_bytes(strategy)) == sent


@pytest.mark.parametrize("strategy", strategies.STRATEGIES)
def test_the_parts_are_those_of_the_chapters_figure(strategy):
    given = {}
    exec("".join(cells()["cuts"]["source"]).replace("plots.cuts(CUTS)", ""), given)
    tokens, layers = given["CUTS"][NAMES[strategy]]
    for rank in range(4):
        mine, held = strategies.holds(strategy, rank)
        assert mine == tuple(part for part in range(4) if tokens[part] in (rank, "all"))
        assert held == tuple(tuple(part for part in range(4) if row[part] in (rank, "all")) for row in layers)


@pytest.mark.parametrize("strategy", strategies.STRATEGIES)
def test_states_are_four_numbers_for_each_weight_that_is_held(strategy):
    _, layers = strategies.holds(strategy, 2)
    quarter = 4 * 4 * 2 * 8 * 32 / 4
    assert strategies.states_bytes(strategy) == quarter * sum(map(len, layers))


def test_more_tokens_send_no_more_where_weights_travel_and_more_neurons_none_where_activations_do():
    for strategy in strategies.STRATEGIES:
        travels = strategy in ("data", "sharded")
        less = max(strategies.sent_bytes(strategy))
        assert (max(strategies.sent_bytes(strategy, tokens=32)) == less) == travels
        assert (max(strategies.sent_bytes(strategy, neurons=64)) == less) != travels


def test_a_pipeline_sends_each_micro_batch_over_each_boundary_once_each_way():
    made = strategies.calls("pipeline")
    for phase, way in (("forward", 1), ("backward", -1)):
        pairs = [pair for call in made if call.phase == phase for pair in call.pairs]
        assert len(pairs) == 4 * 3 and all(target - source == way for source, target in pairs)
    assert [len(call.pairs) for call in made] == 2 * [1, 2, 3, 3, 2, 1]
    assert strategies.sent_bytes("pipeline") == [512, 1024, 1024, 512]


def test_sharding_sends_half_as_much_again_as_an_all_reduce():
    data, sharded = (max(strategies.sent_bytes(name)) for name in ("data", "sharded"))
    assert data == collectives.ring_all_reduce_bytes(8192, 4) and sharded == 1.5 * data


def test_layers_are_as_many_on_each_rank():
    with pytest.raises(ValueError, match="layers must be a multiple of ranks"):
        strategies.calls("data", layers=5)
    with pytest.raises(ValueError, match="strategy must be one of"):
        strategies.holds("zero", 0)
