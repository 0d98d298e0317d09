"""What does a rank hold, and send, in each phase of a step under ZeRO?

States are those of `zero_states`. Between them come and go, in stage 3, the whole of one unit of the model
(a layer), and in stage 2 two buckets of gradients. Gradients are there from backward until the update. What
is offloaded lies outside the device, and with the optimizer go the gradients that it needs.
"""

from collections import namedtuple

from ..collectives.ring import ring_all_gather_bytes, ring_reduce_scatter_bytes
from ..inputs import quantity, whole
from .buffers import BUCKET
from .offload import offload_traffic
from .states import ZERO, recipe_of, share, zero_states

FIELDS = "name weights gradients optimizer whole_weights whole_gradients outside sent link disk"


class Phase(namedtuple("Phase", FIELDS)):
    """Bytes of one rank in a phase.

    weights, gradients, optimizer: of the states, on the device. whole_weights, whole_gradients: of the unit
    that computes, or of buckets, on the device. outside: of the states, on the host or on a disk. sent: to
    other ranks in this phase. link, disk: moved between host and device, disk and host, both directions.
    """

    @property
    def device(self):
        """Bytes on the device."""
        states = self.weights + self.gradients + self.optimizer
        return states + self.whole_weights + self.whole_gradients


def zero_phases(
    parameters, world_size, zero_stage, recipe=ZERO, *, units=1, optimizer="device", weights="device",
    bucket=BUCKET,
):  # fmt: skip
    """The phases of a step with one micro-batch, in their order: a list of `Phase`.

    units: equal pieces that stage 3 brings together one after the other, with nothing prefetched. optimizer,
    weights: "device", "cpu" or "nvme", as in `offload_traffic`. On a ring (Rajbhandari et al. 2020, sections
    5 and 7). Stage 0 reduce-scatters and all-gathers gradients, 1 and 2 gather weights after the update, 3
    gathers them before forward and again before backward. What is sent adds up to `zero_sent_bytes`, and the
    fullest phase holds `zero_bytes` and the buffers.
    """
    states = zero_states(parameters, world_size, zero_stage, recipe)
    recipe = recipe_of(recipe)
    unit = zero_states(share(parameters, whole("units", units)), 1, 0, recipe)
    traffic = offload_traffic(parameters, world_size if zero_stage else 1, optimizer, weights, recipe)
    if weights != "device" and zero_stage < 3:
        raise ValueError(f"weights must be on the device in zero_stage {zero_stage}, not {weights!r}")
    in_two_passes = share(recipe.weights * parameters, world_size) if weights == "nvme" else 0
    reduced = ring_reduce_scatter_bytes(recipe.gradients * parameters, world_size)
    gathered = ring_all_gather_bytes(recipe.weights * parameters, world_size)
    if zero_stage == 0:
        gathered = ring_all_gather_bytes(recipe.gradients * parameters, world_size)
    whole_weights = unit.weights if zero_stage == 3 and (world_size > 1 or weights != "device") else 0
    whole_gradients = unit.gradients if whole_weights else 0
    if zero_stage == 2 and world_size > 1:
        whole_gradients = min(2 * quantity("bucket", bucket), recipe.gradients * parameters)
    phases = []

    def phase(name, grown=False, w=0, g=0, sent=0, link=0, disk=0, updated=False):
        off = optimizer != "device"
        gradients = states.gradients if grown else 0
        left = gradients if off and (zero_stage >= 2 or updated) else 0
        outside = left + (states.optimizer if off else 0) + (0 if weights == "device" else states.weights)
        kept = states.weights if weights == "device" else 0
        on_device = (kept, gradients - left, 0 if off else states.optimizer, w, g)
        phases.append(Phase(name, *on_device, outside, sent, link, disk))

    phase("before")
    come = share(traffic.to_device, 2) if weights != "device" else 0
    if zero_stage == 3:
        moved = {"w": whole_weights, "sent": gathered, "link": come, "disk": in_two_passes}
        phase("gather", **moved)
        phase("free")
        phase("gather again", **moved)
        phase("backward", w=whole_weights, g=whole_gradients)
    else:
        phase("forward")
        phase("backward", zero_stage < 2, g=whole_gradients)
    early = traffic.to_host if zero_stage >= 2 else 0
    phase("reduce-scatter", True, whole_weights, whole_gradients, reduced, early)
    if zero_stage == 0:
        phase("all-gather", True, sent=gathered)
    late = traffic.to_host - early + (0 if come else traffic.to_device)
    phase("update", True, link=late, disk=traffic.disk - 2 * in_two_passes, updated=True)
    if zero_stage in (1, 2):
        phase("all-gather", True, sent=gathered, updated=True)
    phase("after")
    return phases
