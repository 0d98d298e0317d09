"""How many bytes does a rank hold? Counted from the memory behind every tensor that torch makes."""

import time
from weakref import WeakValueDictionary

import torch

from allranks import private

LETTING_GO = 0.001  # seconds in which a thread of gloo lets go of a message that has arrived


class held(private.dispatch_mode()):
    """A context that knows the bytes of all floating-point tensors made in it that are still alive.

    `now()` returns them, and `history` lists them after each operation. Storages are kept weakly, and each is
    counted once however many views it has; of a DTensor, the part on this rank. Integers (tokens), what is on
    the device "meta", where nothing has memory, and a backend's own buffers are left out.

    A thread of gloo holds a collective's message a little longer than the program waits for it, and needs
    the GIL to let go. So `now()`, and whatever raises the maximum of `history`, counts after a moment in
    which threads can let go.
    """

    def __init__(self):
        super().__init__()
        self.alive, self.history, self._most = WeakValueDictionary(), [], 0

    def now(self):
        """Return the bytes that are alive."""
        time.sleep(LETTING_GO)
        return self._count()

    def _count(self):
        return sum(storage.nbytes() for storage in self.alive.values())

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        made = args[0] if result is None and args else result  # `_foreach_add_` returns none that it writes
        results = made if isinstance(made, (list, tuple)) else [made]
        for t in [] if operation.is_view else results:
            if isinstance(t, torch.Tensor) and t.is_floating_point() and not t.is_meta:
                storage = (t.to_local() if hasattr(t, "to_local") else t).untyped_storage()
                self.alive[id(storage)] = storage
        count = self._count()
        self.history.append(self.now() if count > self._most else count)
        self._most = max(self._most, self.history[-1])
        return result
