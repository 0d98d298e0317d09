"""Random numbers as torch draws them on a CPU: the same generator, and the same numbers of its words."""

import math

from .storage import count, elements, float32, sizes_of
from .tensors import Tensor

STATE, AHEAD = 624, 397  # words of MT19937


class Generator:
    """MT19937 (Matsumoto & Nishimura 1998), which torch seeds with one number."""

    def __init__(self, seed):
        state = [seed & 0xFFFFFFFF]
        for i in range(1, STATE):
            state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + i) & 0xFFFFFFFF)
        self.state, self.at, self.kept = state, STATE, None

    def word(self):
        """The next 32 bits."""
        s = self.state
        if self.at == STATE:
            for i in range(STATE):
                y = (s[i] & 0x80000000) | (s[(i + 1) % STATE] & 0x7FFFFFFF)
                s[i] = s[(i + AHEAD) % STATE] ^ (y >> 1) ^ (0x9908B0DF if y & 1 else 0)
            self.at = 0
        y = s[self.at]
        self.at += 1
        y ^= y >> 11
        y ^= (y << 7) & 0x9D2C5680
        y ^= (y << 15) & 0xEFC60000
        return y ^ (y >> 18)

    def uniform(self):
        """A number from 0 to 1, of 24 bits."""
        return (self.word() & 0xFFFFFF) / 2**24

    def fine(self):
        """A number from 0 to 1, of 53 bits."""
        high = self.word()
        return (((high << 32) | self.word()) & (2**53 - 1)) / 2**53

    def normal(self):
        """A normal number. They are made two at a time (Box & Muller 1958), and the second is kept."""
        if self.kept is not None:
            kept, self.kept = self.kept, None
            return kept
        angle = 2 * math.pi * self.fine()
        radius = math.sqrt(-2 * math.log(1 - self.fine()))
        self.kept = radius * math.sin(angle)
        return radius * math.cos(angle)

    def normals(self, n):
        """`n` normal numbers: from 16 on, torch makes them in blocks of 16."""
        if n < 16:
            return [self.normal() for _ in range(n)]
        drawn = [self.uniform() for _ in range(n)]
        for first in range(0, n - 15, 16):
            to_normal(drawn, first)
        if n % 16:  # the last 16 are drawn again
            drawn[n - 16 :] = [self.uniform() for _ in range(16)]
            to_normal(drawn, n - 16)
        return drawn


def to_normal(drawn, first):
    """Make normal numbers of a block of 16."""
    for i in range(first, first + 8):
        radius, angle = math.sqrt(-2 * math.log(1 - drawn[i])), 2 * math.pi * drawn[i + 8]
        drawn[i], drawn[i + 8] = radius * math.cos(angle), radius * math.sin(angle)


generator = None  # of this run of a rank, or of the program around


def manual_seed(seed):
    """Begin again with the numbers of this seed."""
    global generator
    generator = Generator(int(seed))


def seeded():
    """The generator; a rank's own first numbers differ from run to run in no page, so it has to be seeded."""
    if generator is None:
        raise RuntimeError("call torch.manual_seed first: without it, a page has no random numbers")
    return generator


def randn(*size, dtype=None, device=None):
    """Normal numbers."""
    shape = sizes_of(size)
    return Tensor(elements(dtype or float32, seeded().normals(count(shape))), dtype or float32, shape)


def rand(*size, dtype=None, device=None):
    """Numbers from 0 to 1."""
    shape, drawn = sizes_of(size), seeded()
    return Tensor(
        elements(dtype or float32, [drawn.uniform() for _ in range(count(shape))]), dtype or float32, shape
    )
