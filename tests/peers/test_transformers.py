"""Sizes and FLOPs against the models of Hugging Face's transformers."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from allranks import transformer
from allranks.transformer import PRESETS

transformers = pytest.importorskip("transformers", reason="the peer transformers is not installed")

SMALL = {
    "gpt2": transformer.decoder(2, 24, 4, 50, 16),
    "llama": transformer.llama(2, 24, 4, 50, 16, 2, 36),
    "wide heads": transformer.decoder(
        2, 24, 4, 50, 16, kv_heads=2, head_width=10, feed_forward=36,
        gated=True, tied=True, biases=False, learned_positions=False,
    ),
    "mixture": transformer.llama(2, 24, 4, 50, 16, 2, 36, experts=4, active_experts=2),
}  # fmt: skip


def peer(model, device="meta"):
    """The model of transformers that is described by `model`: a GPT-2, a Llama or a Mixtral."""
    common = {"vocab_size": model.vocabulary, "tie_word_embeddings": model.tied}
    if model.biases:
        sizes = {"n_layer": model.layers, "n_embd": model.hidden, "n_head": model.heads}
        config = transformers.GPT2Config(
            **common, **sizes, n_positions=model.sequence, n_inner=model.feed_forward
        )
        kind = transformers.GPT2LMHeadModel
    else:
        common |= {
            "num_hidden_layers": model.layers,
            "hidden_size": model.hidden,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_width,
            "intermediate_size": model.feed_forward,
        }
        config, kind = transformers.LlamaConfig(**common), transformers.LlamaForCausalLM
        if model.experts > 1:
            common |= {
                "num_local_experts": model.experts,
                "num_experts_per_tok": model.active_experts,
            }
            config, kind = transformers.MixtralConfig(**common), transformers.MixtralForCausalLM
    config._attn_implementation = config._experts_implementation = "eager"
    with torch.device(device):
        return kind(config)


def size(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "running"])
def test_a_preset_has_as_many_parameters_as_its_model(name):
    described = PRESETS[name]
    assert transformer.parameters(described) == size(peer(described))


@pytest.mark.parametrize("described", SMALL.values(), ids=SMALL)
def test_each_part_has_as_many_parameters_as_that_of_the_model(described):
    model = peer(described)
    body = model.transformer if described.biases else model.model
    layers, norm = (body.h, body.ln_f) if described.biases else (body.layers, body.norm)
    assert transformer.parameters(described) == size(model)
    assert transformer.layer_parameters(described) == size(layers[0])
    assert transformer.norm_parameters(described) == size(norm)
    output = 0 if described.tied else size(model.lm_head)
    assert transformer.output_parameters(described) == size(norm) + output


@pytest.mark.parametrize("described", SMALL.values(), ids=SMALL)
def test_a_step_takes_as_many_flops_as_torch_counts(described):
    model, tokens = peer(described, "cpu"), torch.arange(3 * 16).view(3, 16)
    with FlopCounterMode(display=False) as counter:
        model(tokens, use_cache=False).logits.sum().backward()
    assert counter.get_total_flops() == transformer.step_flops(described, 3)
