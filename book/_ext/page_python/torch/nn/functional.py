"""Functions of a network that a page can compute, forwards only: there is no autograd."""


def relu(x):
    """The larger of x and 0."""
    return x.relu()


def softmax(x, dim):
    """Weights that add up to 1."""
    return x.softmax(dim)


def linear(x, weight, bias=None):
    """x Wᵀ + b."""
    y = x @ weight.T
    return y if bias is None else y + bias


def layer_norm(x, normalized_shape, eps=1e-5):
    """Mean 0 and variance 1 along the last dimension."""
    if len(normalized_shape) != 1:
        raise ValueError("the page's layer_norm has one dimension; open the notebook for the real torch")
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred * centred).mean(-1, keepdim=True) + eps).sqrt()


def mse_loss(x, target):
    """The mean of squared differences."""
    return ((x - target) * (x - target)).mean()


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"the page has no torch.nn.functional.{name}; open the notebook for the real torch")
