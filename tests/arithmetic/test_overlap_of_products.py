"""A product hides a communication for as long as it takes; a collective in pieces, all but one product's."""

import pytest

from allranks.collectives import beside_a_product, decomposed


@pytest.mark.parametrize("communication, exposed", [(0, 0), (0.5, 0), (1, 0), (2.5, 1.5)])
def test_a_product_hides_as_much_as_it_takes(communication, exposed):
    assert beside_a_product(communication, 1) == exposed


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("communication", [0, 0.3, 0.8, 1, 3])
def test_pieces_of_a_ring_are_a_clock_step_by_step(ranks, communication):
    now = 0.0
    for step in range(ranks):
        arrival = now + communication / (ranks - 1) if step < ranks - 1 else now
        now = max(now + 1 / ranks, arrival)
    assert decomposed(communication, 1, ranks) == pytest.approx(now - 1)
