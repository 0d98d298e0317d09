"""The checks of the chapter on the KV cache say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
import torch
from verdicts import verdict

from allranks.check import kv_cache as checks


def ring(buffer, position, token):
    buffer[position % len(buffer)] = token
    return buffer[: position + 1]


def reversed_ring(buffer, position, token):
    return ring(buffer, position, token).flip(0)


def shifting(buffer, position, token):
    """Slower, and right as well: everything moves."""
    if position >= len(buffer):
        buffer[:-1] = buffer[1:].clone()
    buffer[min(position, len(buffer) - 1)] = token
    return buffer[: position + 1]


def growing(buffer, position, token, kept=None):
    if position == 0:
        growing.kept = []
    growing.kept.append(token)
    buffer[0] = token
    return torch.stack(growing.kept)


def remembering(buffer, position, token):
    if position == 0:
        remembering.kept = []
    remembering.kept = [*remembering.kept, token][-len(buffer) :]
    return torch.stack(remembering.kept)


def whole_buffer(buffer, position, token):
    ring(buffer, position, token)
    return buffer


def stops(buffer, position, token):
    buffer[min(position, len(buffer) - 1)] = token
    return buffer[: position + 1]


@pytest.mark.parametrize(
    "answer, said",
    [
        (ring, "✓ The newest token"),
        (reversed_ring, "✓ The newest token"),
        (shifting, "✓ The newest token"),
        (growing, "old tokens have left the window"),
        (remembering, "write it in place"),
        (whole_buffer, "was ever written"),
        (stops, "which row may be overwritten?"),
        (lambda buffer, position, token: None, "return the rows"),
        (None, "✗"),
    ],
)
def test_window(capsys, answer, said):
    assert said in verdict(capsys, checks.window, answer)


def absorbed(query, up_key, latents):
    return (query[:, None] @ up_key)[:, 0] @ latents.T


def by_einsum(query, up_key, latents):
    return torch.einsum("hc,tc->ht", torch.einsum("hd,hdc->hc", query, up_key), latents)


def with_keys(query, up_key, latents):
    keys = latents @ up_key.mT
    return (keys @ query[..., None])[..., 0]


@pytest.mark.parametrize(
    "answer, said",
    [
        (absorbed, "✓ "),
        (by_einsum, "✓ "),
        (with_keys, "Which product comes first?"),
        (lambda query, up_key, latents: absorbed(query, up_key, latents).T, "(4, 100)"),
        (lambda query, up_key, latents: 2 * absorbed(query, up_key, latents), "not the products"),
        (lambda query, up_key, latents: None, "one for each head and token"),
        (None, "✗"),
    ],
)
def test_absorption(capsys, answer, said):
    assert said in verdict(capsys, checks.absorption, answer)


@pytest.mark.parametrize(
    "answer, said",
    [
        (59, "✓ 59"),
        (60, "round down"),
        (59.55, "round down"),
        (74, "The weights need"),
        (14, "8 heads here"),
        (119, "two tensors"),
        (1, "is not right"),
        (None, "None"),
        ("59", "✗"),
    ],
)
def test_largest_batch(capsys, answer, said):
    assert said in verdict(capsys, checks.largest_batch, answer)
