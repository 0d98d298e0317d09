"""What has to move when states live outside the device, and how fast must the link be?

Optimizer states on the host: gradients leave the device, new weights come back. Weights on the host: they
come in forward, and again in backward. States on a disk are read into the host's memory and written back.
"""

from collections import namedtuple

from ..inputs import one_of, quantity, whole
from ..transformer import RECOMPUTATION
from .states import ZERO, recipe_of, share

PLACES = ("device", "cpu", "nvme")
STATES = ("weights", "optimizer", "checkpoints")


class Traffic(namedtuple("Traffic", "to_device to_host disk_read disk_written")):
    """Bytes that a rank moves in a step: between host and device, and between disk and host."""

    @property
    def link(self):
        """Bytes between host and device, both directions."""
        return self.to_device + self.to_host

    @property
    def disk(self):
        """Bytes between disk and host, both directions."""
        return self.disk_read + self.disk_written


def offload_traffic(
    parameters,
    world_size=1,
    optimizer="cpu",
    weights="device",
    recipe=ZERO,
    microbatches=1,
    recomputation="none",
):
    """Bytes that each of `world_size` ranks moves in a step, as `Traffic`; each rank moves its shard.

    Optimizer on the host: gradients go there after each micro-batch, weights come back once a step: 2Ψ + 2Ψ
    with one micro-batch in 16-bit. Weights on the host: they come for forward and for backward, and with full
    recomputation once more, in each micro-batch. On a disk: each step reads and writes the optimizer's
    states, and reads the weights when they come and writes the new ones.
    """
    quantity("parameters", parameters), whole("world_size", world_size), whole("microbatches", microbatches)
    one_of("optimizer", optimizer, PLACES), one_of("weights", weights, PLACES)
    one_of("recomputation", recomputation, RECOMPUTATION)
    if optimizer == "device" and weights != "device":
        raise ValueError("optimizer must be 'cpu' or 'nvme' where the weights are not on the device")
    recipe = recipe_of(recipe)
    passes = microbatches * (3 if recomputation == "full" else 2)
    to_device = to_host = disk_read = disk_written = 0
    if optimizer != "device":
        to_host = microbatches * recipe.gradients
        to_device = recipe.weights * (1 if weights == "device" else passes)
    if optimizer == "nvme":
        disk_read = disk_written = recipe.master + recipe.momentum + recipe.variance
    if weights == "nvme":
        disk_read += passes * recipe.weights
        disk_written += recipe.weights
    return Traffic(
        *(share(each * parameters, world_size) for each in (to_device, to_host, disk_read, disk_written))
    )


def bandwidth_needed(nbytes, seconds, efficiency=None):
    """Bytes a second to move `nbytes` beside a computation of `seconds`.

    efficiency None: at the same time as the computation, so that it waits for nothing: nbytes/seconds. Else
    one after the other, with the computation taking the share e of the time: nbytes/seconds · e/(1 - e).
    """
    quantity("nbytes", nbytes), quantity("seconds", seconds, positive=True)
    if efficiency is None:
        return nbytes / seconds
    quantity("efficiency", efficiency, positive=True)
    if efficiency >= 1:
        raise ValueError(
            f"efficiency must be below 1, or None for a transfer that is hidden, not {efficiency}"
        )
    return nbytes / seconds * efficiency / (1 - efficiency)


def offload_intensity(state, tokens, hidden=1, interval=1):
    """FLOPs of a step for each byte of `state` that moves, with full recomputation: 8 a token and weight.

    16-bit weights come three times and gradients leave once: 8 bytes. 16 bytes of optimizer states are read
    and written: 32. A checkpoint of 2·hidden bytes a token leaves and comes back every `interval` layers of
    12·hidden² weights (Rajbhandari et al. 2021, section 4.1).
    """
    one_of("state", state, STATES), whole("tokens", tokens)
    whole("hidden", hidden), whole("interval", interval)
    if state == "checkpoints":
        return 8 * 12 * hidden * hidden * interval / (2 * 2 * hidden)
    return 8 * tokens / (8 if state == "weights" else 2 * 16)


def offload_efficiency(intensity, bandwidth, peak):
    """The share of the time that is computation when nothing overlaps: ait·bw / (ait·bw + peak).

    intensity: FLOPs a byte. bandwidth: bytes/s. peak: FLOP/s (Rajbhandari et al. 2021, section 4).
    """
    quantity("intensity", intensity, positive=True), quantity("bandwidth", bandwidth, positive=True)
    quantity("peak", peak, positive=True)
    return intensity * bandwidth / (intensity * bandwidth + peak)
