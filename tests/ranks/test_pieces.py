"""The pieces of the running model, one after another, are the model, wherever it is cut."""

import pytest
import torch
from torch import nn

from allranks.model import GPT, digits
from allranks.pieces import part_of, pieces_of


@pytest.mark.parametrize("cut", [[6], [3, 3], [1, 2, 2, 1]])
def test_stages_one_after_another_compute_what_the_model_computes(cut):
    torch.manual_seed(0)
    model, tokens = GPT(layers=2), digits()[:3, :-1]
    chained = nn.Sequential(*(part_of(model, cut, stage) for stage in range(len(cut))))
    assert torch.equal(chained(tokens), model(tokens))
    assert {id(p) for p in chained.parameters()} == {id(p) for p in model.parameters()}


def test_there_are_two_pieces_for_each_layer_and_two_more():
    assert len(pieces_of(GPT(layers=5))) == 12


def test_a_cut_of_another_model_is_refused():
    with pytest.raises(ValueError, match=r"the cut \[3, 2\] has 5 pieces; the model has 6"):
        part_of(GPT(layers=2), [3, 2], 0)
