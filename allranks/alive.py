"""How many bytes of activations does a rank hold? What is still referred to is counted, weights left out."""

import contextlib
from weakref import WeakValueDictionary

from torch.autograd.graph import saved_tensors_hooks


class Alive:
    """The floating-point memory of the tensors that were noted, as long as something refers to it.

    Two views of one memory count once; that of `weights`, an iterable of tensors, never counts. `peak` is the
    largest number of bytes that `look` has seen.
    """

    def __init__(self, weights):
        self._weights = {w.untyped_storage().data_ptr() for w in weights}
        self._storages, self.peak = WeakValueDictionary(), 0

    def note(self, t):
        """Count the memory of `t` until it is freed; return `t`."""
        storage = t.untyped_storage()
        if t.is_floating_point() and storage.data_ptr() not in self._weights:
            self._storages[storage.data_ptr()] = storage
        return t

    @contextlib.contextmanager
    def saved(self):
        """A block in which whatever autograd saves for a backward is noted."""
        with saved_tensors_hooks(self.note, lambda t: t):
            yield self

    @property
    def nbytes(self):
        """Bytes that are alive now."""
        return sum(storage.nbytes() for storage in self._storages.values())

    def look(self):
        """Measure now, for `peak`."""
        self.peak = max(self.peak, self.nbytes)
