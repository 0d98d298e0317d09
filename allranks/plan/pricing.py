"""What does one layout cost? Its memory and its time, and whether it fits."""

from collections import namedtuple

from .. import transformer
from ..inputs import quantity
from ..memory.states import ZERO
from .footprint import memory_of
from .step import priced

# What software of 2021 could do, as options of `price`: it split no sequence and hid no communication, which
# came later, and kept 20 bytes a parameter in fp16 (Smith et al. 2022, section 2). But a tensor-parallel rank
# sent a t-th of what its stage had made (Narayanan et al. 2021, section 4.1).
IN_2021 = {"sequence_parallel": False, "overlap": 0.0, "recipe": "copied-20", "scattered": True}


class Plan(namedtuple("Plan", "layout memory parts communication seconds mfu capacity")):
    """A layout with its price.

    memory: the `memory.Breakdown` of the fullest stage, in bytes a device. parts: the `Parts` of a step, with
    the communication that is exposed. communication: all `Communication` of a step. seconds: of a step, the
    sum of its parts. mfu: model FLOPs utilisation, all pairs of tokens counted as papers do, also where only
    some are `attended`. capacity: bytes that a device has.
    """

    @property
    def fits(self):
        return self.memory.total <= self.capacity

    @property
    def limit(self):
        """The largest part of a step."""
        return self.parts.limit


def price(
    model, layout, accelerator, *, capacity=None, sequence_parallel=True, recipe=ZERO, dropout=True,
    fused=False, loss=4, **options
):  # fmt: skip
    """The `Plan` of one `Layout`, whether it fits or not; the options are those of `plans`."""
    capacity = accelerator.memory if capacity is None else quantity("capacity", capacity)
    shared = {"sequence_parallel": sequence_parallel, "recipe": recipe}
    took = priced(model, layout, accelerator, dropout=dropout, fused=fused, **shared, **options)
    held = memory_of(model, layout, dropout=dropout, fused=fused, loss=loss, **shared)
    return plan_of(model, layout, held, took, accelerator, capacity, options)


def plan_of(model, layout, held, took, accelerator, capacity, options):
    peak = accelerator.peak[options.get("dtype", "bf16")]
    exposed, communication = took
    seconds = exposed.seconds
    mfu = transformer.mfu(model, layout.batch, seconds, layout.devices, peak)
    return Plan(layout, held, exposed, communication, seconds, mfu, capacity)
