"""Hugging Face's transformers loads the stored digits model and computes the same logits."""

from importlib import resources

import pytest
import torch

from allranks.model import GREYS, digits
from allranks.serving import Cache, generate, load

transformers = pytest.importorskip("transformers", reason="the peer transformers is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="the peer safetensors is not installed")
FOLDER = resources.files("allranks.serving") / "digits"


@pytest.fixture(scope="module")
def peer():
    return transformers.LlamaForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


def test_the_file_is_one_that_safetensors_reads():
    stored = safetensors.load_file(FOLDER / "model.safetensors")
    ours = load().state_dict()
    assert set(stored) == set(ours)
    assert all(torch.equal(stored[name], ours[name]) for name in ours)


@pytest.mark.parametrize("dtype, close", [(torch.float64, 1e-5), (torch.float32, 5e-5)])
@torch.no_grad()
def test_the_logits_are_equal(dtype, close):
    """In 64 bits to 1e-5: transformers still takes its norms in 32. In 32 bits both round."""
    peer = transformers.LlamaForCausalLM.from_pretrained(FOLDER, dtype=dtype).eval()
    tokens = digits()[:32]
    torch.testing.assert_close(load().to(dtype)(tokens), peer(tokens).logits, atol=close, rtol=0)


@torch.no_grad()
def test_both_write_the_same_greys_from_their_caches(peer):
    model, first = load(), torch.arange(10)[:, None] + GREYS
    ours, logits = generate(model, first, cache=Cache(model.shape, 10, 64))
    tokens, past, smallest = first, None, torch.inf
    for step in range(64):
        out = peer(tokens[:, -1:], past_key_values=past, use_cache=True)
        past, found = out.past_key_values, out.logits[:, -1, :GREYS]
        torch.testing.assert_close(found, logits[:, step], atol=1e-4, rtol=1e-4)
        best = found.topk(2).values
        smallest = min(smallest, (best[:, 0] - best[:, 1]).min().item())
        tokens = torch.cat([tokens, found.argmax(-1, keepdim=True)], 1)
    assert torch.equal(tokens, ours)
    assert smallest > 1e-4, "two greys were equally likely: that both chose the same one was luck"
