"""The running model learns, and is what its parameter count says."""

import pytest
import torch
from sklearn.datasets import load_digits

from allranks.model import DIGITS, GPT, GREYS, PIXELS, VOCABULARY, digits, draw, loss_of, train


def new_model():
    torch.manual_seed(0)
    return GPT()


def test_a_picture_is_its_digit_and_64_greys():
    tokens = digits()
    assert tokens.shape == (1797, 65)
    assert set(tokens[:, 0].tolist()) == set(range(GREYS, GREYS + DIGITS))
    assert tokens[:, 1:].min() == 0 and tokens[:, 1:].max() == GREYS - 1
    assert GREYS + DIGITS <= VOCABULARY


def test_the_pictures_are_scikit_learns():
    theirs, tokens = load_digits(), digits()
    assert (tokens[:, 0] - GREYS).tolist() == theirs.target.tolist()
    assert tokens[:, 1:].tolist() == theirs.data.tolist()


def test_a_layer_has_12_h_squared_and_13_h_parameters():
    """Narayanan et al. 2021, equation 2: 12h² weights, 13h biases and norms in a layer."""
    layers, hidden = 4, 64
    in_layers = layers * (12 * hidden**2 + 13 * hidden)
    embeddings, head, last_norm = (VOCABULARY + PIXELS) * hidden, VOCABULARY * hidden, 2 * hidden
    assert sum(p.numel() for p in new_model().parameters()) == in_layers + embeddings + head + last_norm


def test_an_untrained_model_knows_about_as_little_as_a_uniform_guess():
    loss = loss_of(new_model(), digits()[:64]).item()
    assert loss == pytest.approx(torch.tensor(VOCABULARY).log().item(), rel=0.15)


def test_a_token_does_not_see_those_after_it():
    model, tokens = new_model(), digits()[:2, :-1]
    changed = tokens.clone()
    changed[:, 40:] = 0
    assert torch.equal(model(tokens)[:, :40], model(changed)[:, :40])
    assert not torch.equal(model(tokens)[:, 40:], model(changed)[:, 40:])


def test_training_lowers_the_loss_and_is_repeatable():
    batches = list(digits()[:320].split(32))
    losses = train(new_model(), batches)
    assert losses[-1] < 0.65 * losses[0]
    assert train(new_model(), batches) == losses


def test_the_model_draws_one_picture_of_greys_for_each_digit():
    pictures = draw(new_model(), digits=[3, 7])
    assert pictures.shape == (2, 8, 8)
    assert pictures.min() >= 0 and pictures.max() < GREYS
