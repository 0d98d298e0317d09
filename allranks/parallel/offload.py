"""Where does the optimizer live when the device has no room for it? In the host's memory, or in a file.

The device keeps the weights; each rank's slice of the gradients goes to the host, and new weights come back
(ZeRO-Offload, Ren et al. 2021). `move` is the only way between places, and it counts. On CPU ranks the
places are two copies in one memory; with the slices on a GPU the same lines cross the link.
"""

from collections import Counter

import torch


def move(source, target, route, moved):
    """Copy `source` to `target`, in another place, and add its bytes to `moved[route]`."""
    if (source.dtype, source.shape) != (target.dtype, target.shape):
        raise ValueError(
            "a transfer changes neither dtype nor shape: "
            f"{source.dtype} {tuple(source.shape)} cannot go into "
            f"{target.dtype} {tuple(target.shape)}"
        )
    target.copy_(source)
    moved[route] += source.nbytes


def adam_on(states, options):
    """Return the first row of `states`, 32-bit weights, and torch's AdamW with its moments in the others."""
    weights, mean, square = states
    adam = torch.optim.AdamW([weights], **options)
    adam.state[weights] = {"step": torch.tensor(0.0), "exp_avg": mean, "exp_avg_sq": square}
    return weights, adam


class HostAdam:
    """AdamW in the host's memory for `slices` on the device; each has its gradient when `step` is called."""

    def __init__(self, slices, **options):
        self.slices, self.moved = slices, Counter()
        self.stored, self.present = self.places([len(piece) for piece in slices])
        for piece, states in zip(slices, self.stored, strict=True):
            states.zero_()[0].copy_(piece.detach())
        self.adams = [adam_on(states, options) for states in self.present]

    def places(self, lengths):
        """Return where the three states of each slice are stored, and where Adam works on them: here too."""
        states = [torch.empty(3, length) for length in lengths]
        return states, states

    def update(self, number):
        """Take Adam's step on one slice."""
        self.adams[number][1].step()

    @torch.no_grad()
    def step(self):
        for number, piece in enumerate(self.slices):
            gradient = torch.empty_like(piece, device="cpu")
            move(piece.grad, gradient, "to_host", self.moved)
            weights, _ = self.adams[number]
            weights.grad = gradient.float()
            self.update(number)
            move(weights.to(piece.dtype), piece, "to_device", self.moved)


class FileAdam(HostAdam):
    """AdamW with its states in a file: read and written slice by slice, through a buffer for the longest."""

    def __init__(self, slices, file, **options):
        self.file = file
        super().__init__(slices, **options)

    def places(self, lengths):
        sizes = [3 * length for length in lengths]
        pages = torch.from_file(self.file, shared=True, size=sum(sizes))
        stored = [page.view(3, -1) for page in pages.split(sizes)]
        buffer = torch.empty(max(sizes))
        return stored, [buffer[:size].view(3, -1) for size in sizes]

    def update(self, number):
        stored, present = self.stored[number], self.present[number]
        move(stored, present, "disk_read", self.moved)
        super().update(number)
        move(present, stored, "disk_written", self.moved)
