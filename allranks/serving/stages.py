"""What does a pipeline do for decoding? Each rank has some of the layers; a token visits all ranks in turn.

In a tick each stage passes one token of one request through its layers, and then all results move on by one
stage. The last stage chooses the next token and sends its embedding back to the first.
"""

import torch
import torch.distributed as dist

from allranks.model import GREYS
from allranks.parallel.context import shift, wait

from .cache import Cache


def own_layers(model, requests):
    """This stage's layers; ValueError if the stages cannot share them, or if there are too many requests."""
    stages, layers = dist.get_world_size(), model.model.layers
    if requests > stages or len(layers) % stages:
        raise ValueError(
            f"{stages} stages cannot take {requests} requests through "
            f"{len(layers)} layers: give at most one request for each stage, "
            "and a number of stages that divides the layers"
        )
    each = len(layers) // stages
    return layers[dist.get_rank() * each :][:each]


def through(layers, x, cache):
    """Pass one token (1, 1, hidden) through these layers."""
    position = torch.tensor([cache.length], device=x.device)
    for number, layer in enumerate(layers):
        x = layer(x, position, number, cache)
    cache.length += 1
    return x


@torch.no_grad()
def generate_in_stages(model, first, new):
    """Write the `new` likeliest greys behind each of `first` (requests,), in a pipeline of all ranks.

    Return the greys (requests, new), which only the last stage has chosen (−1 elsewhere), and a log: for each
    tick the request that this stage worked on, or None.
    """
    stage, stages = dist.get_rank(), dist.get_world_size()
    layers, log = own_layers(model, len(first)), []
    shape = model.shape._replace(layers=len(layers))
    caches = [Cache(shape, 1, new, device=first.device) for _ in first]
    chosen = first.new_full((len(first), new), -1)
    x = torch.zeros(1, 1, shape.hidden, device=first.device)
    for tick in range(stages * new + len(first) - 1):
        turn, request = divmod(tick - stage, stages)
        works = request < len(first) and 0 <= turn < new
        log.append(request if works else None)
        if works:
            if stage == 0 and turn == 0:
                x = model.model.embed_tokens(first[request]).view(1, 1, -1)
            x = through(layers, x, caches[request])
            if stage == stages - 1:
                logits = model.lm_head(model.model.norm(x))[0, 0, :GREYS]
                chosen[request, turn] = logits.argmax()
                x = model.model.embed_tokens(chosen[request, turn]).view(1, 1, -1)
        x = wait(*shift(x)) if stages > 1 else x
    return chosen, log
