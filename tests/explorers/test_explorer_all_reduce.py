"""The all-reduce explorer shows the moves that sum, and times that the arithmetic gives."""

import pytest

from allranks import collectives
from allranks.explorers import all_reduce
from allranks.explorers.all_reduce_grid import Grid, lanes, runs
from allranks.explorers.frame.controls import settings
from allranks.explorers.frame.svg import WIDE
from allranks.explorers.frame.words import scaled, seconds


def draw(width=WIDE, **given):
    """What is shown at these settings, the others as they begin."""
    return all_reduce.draw(width, **settings(all_reduce.CONTROLS, given))


@pytest.mark.parametrize("name", [name for name in collectives.PLAYED if name != "two_level"])
@pytest.mark.parametrize("p", [4, 7, 16])
def test_the_text_says_what_the_arithmetic_gives(name, p):
    n, α, β = 4 * 10**6, 20 / 1e6, 1e-10
    given = {"algorithm": name, "beside": name, "world_size": p, "nbytes": n, "latency": 20}
    said = draw(**given, bandwidth=10**10, step=10**5)["text"]
    cost = collectives.cost("all_reduce", name, n, p)
    taken = collectives.seconds("all_reduce", name, n, p, α, β)
    assert f"takes {seconds(taken, 4)}: {cost.rounds} rounds, {scaled(cost.nbytes, 'B')} in sequence" in said
    sums = p * collectives.all_reduce_chunks(name, p)
    assert f"After {cost.rounds} of {cost.rounds} rounds" in said
    assert f"; {seconds(taken)}), {sums} of {sums} sums on the ranks are complete." in said


def test_inside_a_node_a_two_level_ring_is_faster_by_what_is_set():
    given = {"algorithm": "two_level", "world_size": 16, "ranks_per_node": 8, "latency": 10}
    levels = collectives.hierarchical_all_reduce(4 * 10**7, 8, 2)
    for faster in (1, 16):
        said = draw(**given, bandwidth=10**10, faster=faster, step=10**5)["text"]
        taken = levels.seconds(1e-5 / faster, 1e-10 / faster, 1e-5, 1e-10)
        assert f"two-level ring takes {seconds(taken, 4)}" in said
        assert f"(all-gather inside nodes; {seconds(taken)})" in said
        assert f"{scaled(levels.inter.nbytes, 'B')} of it between nodes of 8" in said


@pytest.mark.parametrize("p", [4, 6, 8, 16])
def test_the_crossover_is_the_closed_form_s(p):
    at = collectives.crossover("all_reduce", "ring", "recursive_doubling", p, 1e-5, 1 / (5 * 10**10))
    shown = draw(world_size=p, ranks_per_node=1)
    assert f"Both take the same time at {scaled(at, 'B')}." in shown["text"]
    assert f"equal at {scaled(at, 'B')}" in shown["svg"]


def test_with_a_power_of_two_ranks_a_ring_never_beats_halving_and_doubling():
    said = draw(beside="halving_doubling")["text"]
    assert "They never take the same time." in said
    assert "ring takes 1.54 ms: 14 rounds, 70 MB" in said
    assert "halving–doubling takes 1.46 ms: 6 rounds, 70 MB" in said


def test_after_a_ring_s_reduce_scatter_each_rank_has_one_complete_sum():
    shown = draw(step=7)
    assert "After 7 of 14 rounds (reduce-scatter; 770 µs), 8 of 64 sums" in shown["text"]
    assert shown["svg"].count(">Σ<") == 8
    assert shown["steps"] == 15


@pytest.mark.parametrize("step", range(15))
def test_the_cells_show_the_contributions(step):
    cells = draw(step=step)["svg"]
    held = [len(chunk) for row in collectives.contributions("ring", 8, step) for chunk in row]
    assert cells.count(">Σ<") == held.count(8)
    for many in range(1, 8):
        ink = 'font-size="12" text-anchor="middle" style="fill:var(--ar-ink,#20262e)"'
        assert cells.count(f"{ink}>{many}<") == held.count(many)


def test_where_there_is_room_a_cell_names_its_contributions():
    shown = draw(world_size=4, ranks_per_node=1, step=2)
    for row in collectives.contributions("ring", 4, 2):
        for ranks in row:
            assert f">{'+'.join(map(str, ranks))}<" in shown["svg"]


def test_an_exchange_is_one_arrow_with_two_heads():
    moves = collectives.all_reduce_rounds("recursive_doubling", 4)[0].moves
    assert lanes(moves) == [(0, 1, 0, 1, True), (2, 3, 0, 1, True)]


@pytest.mark.parametrize("p", [8, 12, 13, 16])
@pytest.mark.parametrize("name", collectives.PLAYED)
def test_no_two_arrows_of_a_round_lie_on_each_other(name, p):
    g = 1 if p == 13 else 4
    rounds, chunks = collectives.all_reduce_rounds(name, p, g), collectives.all_reduce_chunks(name, p, g)
    grid = Grid(WIDE, p, chunks, max(len(lanes(each.moves)) for each in rounds))
    for each in rounds:
        placed = []
        for x, *ends, _ in grid.places(each.moves):
            low, high = sorted(ends)
            assert all(x != other or high <= a or low >= b for other, a, b in placed), each.phase
            placed.append((x, low, high))


def test_contributions_are_drawn_as_runs():
    assert runs((0, 1, 4, 6, 7)) == [(0, 2), (4, 1), (6, 2)]


def test_controls_without_effect_are_idle():
    assert draw()["idle"] == ["ranks_per_node", "faster"]
    assert draw(beside="two_level")["idle"] == []
