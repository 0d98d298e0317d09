"""How long does a model take to answer, alone and under load?

The model: a step takes new tokens of some sequences through the network; its seconds follow from what it
computes, reads and sends. Requests arrive over time, wait, are computed in batches that a policy forms before
every step, and hold pages of a pool for their keys and values. Time is simulated, never measured.
"""

from .arrivals import Request, evenly, gamma, lengths, poisson, requests
from .azure import code_arrivals, code_requests
from .bounds import NextToken, batch_knee, decode_memory, decode_seconds, next_token
from .latencies import (
    attainment,
    gaps,
    goodput,
    mean,
    most_pages,
    percentile,
    preemptions,
    recomputed_tokens,
    tpot,
    ttft,
)
from .moving import (
    Route,
    break_even_bandwidth,
    held_heads,
    mooncake_break_even,
    moved_bytes,
    recompute_flops,
    routes,
    streamed_seconds,
)
from .pools import Link, cache_link, serve_replicas, serve_split
from .queueing import mean_wait, pipelined_prefill, prefill, tensor_parallel_prefill
from .reservations import Shares, exponential_lengths, memory_shares
from .resharding import WAYS, Resharding, generation_groups, reshard
from .roofline import Step, largest_batch, latent_attention_flops, step, weight_bytes
from .server import POLICIES, Iteration, Run, Served, serve
from .speculation import expected_tokens, speculation_flops, speculation_speed_up
from .step_time import Engine, constant, engine
from .tensor import (
    LAYOUTS,
    Messages,
    gathered_elements,
    layout_elements,
    stationary_elements,
    tensor_messages,
    tensor_slice,
)

__all__ = [
    "LAYOUTS",
    "POLICIES",
    "WAYS",
    "Engine",
    "Iteration",
    "Link",
    "Messages",
    "NextToken",
    "Request",
    "Resharding",
    "Route",
    "Run",
    "Served",
    "Shares",
    "Step",
    "attainment",
    "batch_knee",
    "break_even_bandwidth",
    "cache_link",
    "code_arrivals",
    "code_requests",
    "constant",
    "decode_memory",
    "decode_seconds",
    "engine",
    "evenly",
    "expected_tokens",
    "exponential_lengths",
    "gamma",
    "gaps",
    "gathered_elements",
    "generation_groups",
    "goodput",
    "held_heads",
    "largest_batch",
    "latent_attention_flops",
    "layout_elements",
    "lengths",
    "mean",
    "mean_wait",
    "memory_shares",
    "mooncake_break_even",
    "most_pages",
    "moved_bytes",
    "next_token",
    "percentile",
    "pipelined_prefill",
    "poisson",
    "preemptions",
    "prefill",
    "recompute_flops",
    "recomputed_tokens",
    "requests",
    "reshard",
    "routes",
    "serve",
    "serve_replicas",
    "serve_split",
    "speculation_flops",
    "speculation_speed_up",
    "stationary_elements",
    "step",
    "streamed_seconds",
    "tensor_messages",
    "tensor_parallel_prefill",
    "tensor_slice",
    "tpot",
    "ttft",
    "weight_bytes",
]
