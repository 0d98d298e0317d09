"""How large is a decoder, and how much does it compute? Parameters exactly, FLOPs by the published counts.

`sizes` has the record of a decoder and its parameters, `flops` what a step computes, `presets` the shapes of
published models.
"""

from .flops import (
    RECOMPUTATION,
    attention_core_flops,
    backward_flops,
    forward_flops,
    hfu,
    layer_flops,
    logits_flops,
    mfu,
    recomputation_flops,
    step_flops,
    training_flops,
    training_seconds,
)
from .presets import PRESETS, gpt2, llama, megatron
from .sizes import (
    Transformer,
    active_parameters,
    attention_parameters,
    decoder,
    embedding_parameters,
    expert_parameters,
    layer_parameters,
    norm_parameters,
    output_parameters,
    parameters,
    router_parameters,
)

__all__ = [
    "PRESETS",
    "RECOMPUTATION",
    "Transformer",
    "active_parameters",
    "attention_core_flops",
    "attention_parameters",
    "backward_flops",
    "decoder",
    "embedding_parameters",
    "expert_parameters",
    "forward_flops",
    "gpt2",
    "hfu",
    "layer_flops",
    "layer_parameters",
    "llama",
    "logits_flops",
    "megatron",
    "mfu",
    "norm_parameters",
    "output_parameters",
    "parameters",
    "recomputation_flops",
    "router_parameters",
    "step_flops",
    "training_flops",
    "training_seconds",
]
