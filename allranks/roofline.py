"""What can an operation reach on a device? Its FLOPs and bytes under the roofline (Williams et al. 2009).

The model: inputs are read from memory once and the result is written once; arithmetic and memory overlap
perfectly, so that the slower of the two takes all the time.
"""

from collections import namedtuple

from . import hardware
from .inputs import quantity


class Operation(namedtuple("Operation", "flops nbytes")):
    """What an operation computes, and the bytes that it reads and writes."""

    @property
    def intensity(self):
        """FLOPs a byte."""
        return self.flops / self.nbytes


class Reached(namedtuple("Reached", "share arithmetic memory missing")):
    """What an operation reaches on a device.

    share: of the peak, at most. arithmetic, memory: the seconds that each takes alone. missing: FLOPs a byte
    that it lacks to the ridge; 0 if it has enough.
    """

    @property
    def seconds(self):
        """Seconds that the operation takes at least."""
        return max(self.arithmetic, self.memory)

    @property
    def bound(self):
        """Which takes longer: "arithmetic" or "memory"."""
        return "arithmetic" if self.arithmetic >= self.memory else "memory"


def product(m, k, n, element, times=1):
    """The `Operation` of `times` products of m × k by k × n, of `element` bytes each element."""
    moved = element * (m * k + k * n + m * n)
    return Operation(2 * m * k * n * times, moved * times)


def addition(elements, element):
    """The `Operation` of adding two tensors of `elements` elements of `element` bytes."""
    return Operation(elements, 3 * element * elements)


def reached(operation, accelerator, dtype="bf16"):
    """What `operation` has `Reached` at most in `dtype` on the accelerator of this name."""
    quantity("the operation's bytes", operation.nbytes, positive=True)
    peak, ridge = hardware.peak(accelerator, dtype), hardware.ridge(accelerator, dtype)
    intensity = operation.flops / operation.nbytes
    bandwidth = hardware.accelerator(accelerator).bandwidth
    share, missing = min(1, intensity / ridge), max(0, ridge - intensity)
    return Reached(share, operation.flops / peak, operation.nbytes / bandwidth, missing)
