"""Of torch.nn, a page has a few functions: `torch.nn.functional`."""


def __getattr__(name):
    raise AttributeError(f"the page has no torch.nn.{name}; open the notebook for the real torch")
