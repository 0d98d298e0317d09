"""How many bytes does training hold on a rank, and which? And how many does inference keep for each token?

The model: what has to be in memory at the fullest moment of a step, counted tensor by tensor from shapes and
dtypes. What an allocator wastes, a library's workspace and the driver's own memory are not counted.
"""

from .activations import (
    Saved,
    activation_bytes,
    in_flight,
    kept_bytes,
    layer_activation_bytes,
    layer_activation_parts,
    layer_tensors,
    output_activation_bytes,
    recomputed_bytes,
)
from .buffers import ddp_bucket_bytes, ddp_buckets, unsharded_bytes
from .kv_cache import kv_cache_bytes, latent_cache_bytes
from .offload import Traffic, bandwidth_needed, offload_efficiency, offload_intensity, offload_traffic
from .states import (
    RECIPES,
    ZERO,
    Recipe,
    States,
    Window,
    shard_elements,
    trainable_parameters,
    zero_bytes,
    zero_sent_bytes,
    zero_states,
    zero_windows,
)
from .training import Breakdown, pieces, rank_parameters, stage_layers, training_bytes

__all__ = [
    "RECIPES",
    "ZERO",
    "Breakdown",
    "Recipe",
    "Saved",
    "States",
    "Traffic",
    "Window",
    "activation_bytes",
    "bandwidth_needed",
    "ddp_bucket_bytes",
    "ddp_buckets",
    "in_flight",
    "kept_bytes",
    "kv_cache_bytes",
    "latent_cache_bytes",
    "layer_activation_bytes",
    "layer_activation_parts",
    "layer_tensors",
    "offload_efficiency",
    "offload_intensity",
    "offload_traffic",
    "output_activation_bytes",
    "pieces",
    "rank_parameters",
    "recomputed_bytes",
    "shard_elements",
    "stage_layers",
    "trainable_parameters",
    "training_bytes",
    "unsharded_bytes",
    "zero_bytes",
    "zero_sent_bytes",
    "zero_states",
    "zero_windows",
]
