"""Local updates: ranks train alone for some steps, then put together how far each has come.

Local SGD (Stich 2019) averages the weights. DiLoCo (Douillard et al. 2023) hands their mean change to an
outer optimizer, and Streaming DiLoCo (Douillard et al. 2025) does so for one fragment of the model after the
other, while the ranks train on, in messages of 4 bits a parameter.
"""

import torch
import torch.distributed as dist


class Fragment:
    """Parameters that meet at the same steps: where they started last time, and the outer optimizer.

    With `rate` 1 and `momentum` 0, a meeting averages them.
    """

    def __init__(self, parameters, rate=1.0, momentum=0.0):
        self.parameters = list(parameters)
        self.start = [p.detach().clone() for p in self.parameters]
        self.outer = torch.optim.SGD(self.start, rate, momentum, nesterov=momentum > 0)

    def send(self):
        """Start to average the outer gradient: minus the change since the last start."""
        changes = [s - p.detach() for s, p in zip(self.start, self.parameters)]
        self.message = torch.cat([change.flatten() for change in changes])
        self.work = self.exchange()

    def exchange(self):
        """Start the collective, and return what can be waited for."""
        return dist.all_reduce(self.message, op=dist.ReduceOp.AVG, async_op=True)

    @torch.no_grad()
    def receive(self, keep=0.0):
        """Wait for the average, take the outer step, go on from it; `keep` is the share of a rank's own."""
        self.work.wait()
        sizes = [s.numel() for s in self.start]
        for s, gradient in zip(self.start, self.message.split(sizes)):
            s.grad = gradient.view_as(s)
        self.outer.step()
        for s, p in zip(self.start, self.parameters):
            p.lerp_(s, 1 - keep)


LEVELS = torch.tensor([0.0, *(2.0**k for k in range(-6, 1))])  # what 3 exponent bits say of a magnitude


def pack(vector):
    """Return `vector` in 4 bits an element: sign and one of LEVELS, times the largest magnitude.

    Two elements share a byte (uint8); the last four bytes are the largest magnitude, in float32. E3M0 is the
    format of Streaming DiLoCo, section 2.4; one scale for the whole vector is our choice.
    """
    largest = vector.abs().max().reshape(1)
    middles = ((LEVELS[1:] + LEVELS[:-1]) / 2).to(vector)
    codes = torch.bucketize(vector.abs() / largest, middles) + 8 * (vector < 0)
    codes = torch.nn.functional.pad(codes, (0, len(codes) % 2)).to(torch.uint8)
    return torch.cat([codes[0::2] << 4 | codes[1::2], largest.view(torch.uint8)])


def unpack(packed, count):
    """Return the vector of `count` elements, in float32, that `pack` has rounded."""
    codes = torch.stack([packed[:-4] >> 4, packed[:-4] & 15], dim=1).flatten()[:count].long()
    magnitudes = LEVELS.to(packed.device)[codes & 7] * packed[-4:].clone().view(torch.float32)
    return torch.where(codes >= 8, -magnitudes, magnitudes)


class FourBits(Fragment):
    """A fragment whose ranks send 4 bits a parameter to each other, and average in float32 what arrives."""

    def exchange(self):
        """Start to gather all ranks' packed messages; their sum would not have 4 bits."""
        packed = pack(self.message)
        self.packed = packed.new_empty(dist.get_world_size() * len(packed))
        return dist.all_gather_single(self.packed, packed, async_op=True)

    def receive(self, keep=0.0):
        """Wait for the messages, average them, and go on as a `Fragment` does."""
        self.work.wait()
        parts = self.packed.chunk(dist.get_world_size())
        unpacked = [unpack(part, len(self.message)) for part in parts]
        self.message = torch.stack(unpacked).mean(0)
        super().receive(keep)


class Rounds:
    """Calls every fragment's `send` at its step of every `every`, and `receive` after `delay` more steps."""

    def __init__(self, fragments, steps, every, delay=0, keep=0.0):
        self.fragments, self.steps, self.every = fragments, steps, every
        self.delay, self.keep, self.number, self.waiting = delay, keep, 0, []

    def step(self):
        """Call this after each step of the inner optimizer."""
        for fragment, at in zip(self.fragments, self.steps):
            if self.number % self.every == at:
                fragment.send()
                self.waiting.append((self.number + self.delay, fragment))
        while self.waiting and self.waiting[0][0] <= self.number:
            self.waiting.pop(0)[1].receive(self.keep)
        self.number += 1
