"""Which bytes does autograd keep for backward? Each storage counts once, and the weights not at all."""

import weakref
from collections import Counter

from torch.autograd.graph import saved_tensors_hooks


def kept_by(run, weights, statistics=True):
    """Return (bytes that autograd keeps of `run()`, what `run` returns).

    run: a function without arguments, which computes forward. weights: tensors that are there anyway and do
    not count. statistics: whether tensors count whose last dim is 1, as the mean and variance of a norm,
    which Korthikanti et al. 2022 leave out (section 4.1).
    """
    seen, kept = {w.untyped_storage().data_ptr() for w in weights}, []

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen and (statistics or tensor.shape[-1] > 1):
            seen.add(storage.data_ptr())
            kept.append(tensor)  # alive, so that no other storage gets its address
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        output = run()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept), output


class kept_over_time(saved_tensors_hooks):
    """A context that knows at every moment what autograd keeps for backward of what runs in it.

    `history` lists the bytes, from 0, after each tensor that is kept or released. `weights` and `statistics`
    as in `kept_by`. Autograd stores an object in the place of the tensor; its end is the tensor's release.
    """

    def __init__(self, weights, statistics=True):
        super().__init__(self._keep, lambda kept: kept.tensor)
        self.statistics, self.history = statistics, [0]
        self._users = Counter(w.untyped_storage().data_ptr() for w in weights)

    def __enter__(self):
        super().__enter__()
        return self

    def _keep(self, tensor):
        kept, storage = _Kept(tensor), tensor.untyped_storage()
        if self.statistics or tensor.shape[-1] > 1:
            place = storage.data_ptr(), storage.nbytes()
            self._change(*place, +1)
            weakref.finalize(kept, self._change, *place, -1)
        return kept

    def _change(self, place, nbytes, users):
        before = self._users[place]
        self._users[place] += users
        if 0 in (before, self._users[place]):
            self.history.append(self.history[-1] + users * nbytes)


class _Kept:
    def __init__(self, tensor):
        self.tensor = tensor
