"""Which bytes does autograd keep for backward? Each storage counts once, and the weights not at all."""

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
