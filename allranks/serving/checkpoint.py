"""How does one checkpoint serve two libraries? safetensors and config.json, as Hugging Face stores them."""

import json
from importlib import resources

from safetensors.torch import load_file, save_file

from allranks import transformer

from .model import Llama

FIELDS = {  # of config.json: of `Transformer`
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_width",
    "intermediate_size": "feed_forward",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "sequence",
}
FIXED = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "dtype": "float32",
    "bos_token_id": None,
    "eos_token_id": None,
}


def shape_of(config):
    """The `Transformer` that a config.json describes; ValueError if it is not a Llama as `Llama` is one."""
    for field, value in FIXED.items():
        if field in config and config[field] != value:
            raise ValueError(f"{field} must be {value!r} in config.json, not {config[field]!r}")
    sizes = {ours: config[theirs] for theirs, ours in FIELDS.items()}
    return transformer.decoder(**sizes, gated=True, tied=False, biases=False, learned_positions=False)


def save(model, folder):
    """Write config.json and model.safetensors of a `Llama` into `folder`, a `pathlib.Path`."""
    sizes = {theirs: getattr(model.shape, ours) for theirs, ours in FIELDS.items()}
    (folder / "config.json").write_text(json.dumps(FIXED | sizes, indent=2) + "\n", encoding="utf-8")
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def load(folder=None):
    """Return the `Llama` of a folder; without one the digits model, which comes with this package."""
    folder = resources.files(__package__) / "digits" if folder is None else folder
    model = Llama(shape_of(json.loads((folder / "config.json").read_text(encoding="utf-8"))))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval()
