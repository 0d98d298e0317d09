"""How many bytes did a device hold? Counted while it ran, to be compared with `allranks.memory`.

On a GPU `torch.cuda`'s statistics say it: the bytes that tensors asked for, and, in multiples of 512, what
the allocator gave them. On a CPU the profiler writes down every allocation. Work areas of cuBLAS are tensors
to the allocator, and stay: everything runs once before it is counted.
"""

import gc
from collections import namedtuple
from itertools import accumulate

from allranks import memory
from allranks.transformer import parameters

from .timing import finish

Row = namedtuple("Row", "what formula counted slack given")
Row.__doc__ = """One comparison, in bytes: what the `formula` says, what was `counted`, by how much the two
may differ (`slack`; None: shown, not compared), and what the allocator had `given` for it, 0 on a CPU."""


def agrees(row):
    """Whether the count is what the formula says; None if it is only shown."""
    return None if row.slack is None else abs(row.counted - row.formula) <= row.slack


class Counted:
    """`with Counted(device) as it:` counts; then it.kept and it.peak are bytes beyond those held before."""

    def __init__(self, device):
        import torch

        self.device, self.on_gpu = device, torch.device(device).type == "cuda"
        self.given = 0

    def __enter__(self):
        import torch

        gc.collect()
        finish(self.device)
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
            self.before = self._requested()
            self.given_before = torch.cuda.memory_allocated()
        else:
            only_cpu = [torch.profiler.ProfilerActivity.CPU]
            self.profile = torch.profiler.profile(activities=only_cpu, profile_memory=True)
            self.profile.__enter__()
        return self

    def __exit__(self, *error):
        finish(self.device)
        if self.on_gpu:
            import torch

            self.kept, self.peak = (
                now - then for now, then in zip(self._requested(), [self.before[0]] * 2, strict=True)
            )
            self.given = torch.cuda.memory_allocated() - self.given_before
            return
        self.profile.__exit__(*error)
        events = self.profile.profiler.kineto_results.events()  # private: the public sums hide the peak
        changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
        held = list(accumulate((nbytes for _, nbytes in changes), initial=0))
        self.kept, self.peak = held[-1], max(held)

    @staticmethod
    def _requested():
        import torch

        statistics = torch.cuda.memory_stats()
        return [statistics[f"requested_bytes.all.{when}"] for when in ("current", "peak")]


def running_model(shape, device, dtype=None):
    """`allranks.model.GPT` in another size: the same layers, with embeddings and a head of `shape`'s."""
    import torch
    from torch import nn

    from allranks.model import GPT

    with torch.device(device):
        model = GPT(shape.layers, shape.hidden, shape.heads)
        model.token = nn.Embedding(shape.vocabulary, shape.hidden)
        model.position = nn.Embedding(shape.sequence, shape.hidden)
        model.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
    return model.to(dtype)


def random_tokens(shape, batch, device):
    """Tokens (batch, sequence + 1) of a text that nobody wrote."""
    import torch

    return torch.randint(shape.vocabulary, (batch, shape.sequence + 1), device=device)


def state_rows(shape, device):
    """Weights, gradients and Adam's moments, in fp32 and in bf16, each beside the formula."""
    import torch

    from allranks.model import loss_of

    for recipe, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        expected = memory.zero_states(parameters(shape), 1, 0, recipe)
        tokens = random_tokens(shape, 1, device)
        counted = []
        for _ in range(2):  # the first time, for what stays
            counted.clear()
            with Counted(device) as weights:
                model = running_model(shape, device, dtype)
            with Counted(device) as gradients:
                loss_of(model, tokens).backward()
            optimizer = torch.optim.AdamW(model.parameters(), fused=True)
            with Counted(device) as moments:
                optimizer.step()
            steps = 4 * sum(1 for _ in model.parameters())  # each parameter's count of steps
            counted += [weights, gradients, moments]
            del model, optimizer
        for name, formula, count in zip(
            ("weights", "gradients", "Adam's moments"),
            (expected.weights, expected.gradients, expected.optimizer + steps),
            counted,
            strict=True,
        ):
            more = " and counts of steps" if name.startswith("Adam") else ""
            yield Row(f"{name}{more}, {recipe}", formula, count.kept, 0, count.given)


def kept_by(layers, shape, batch, device):
    """Bytes that a forward pass through `layers` leaves for backward, its input among them, in bf16."""
    import torch

    for _ in range(2):
        with Counted(device) as counted:
            x = torch.randn(batch, shape.sequence, shape.hidden, device=device, dtype=torch.bfloat16)
            y = x.requires_grad_()
            for layer in layers:
                y = layer(y)
        result = y.nbytes  # nothing needs it in backward
        y.sum().backward()
        for p in (p for layer in layers for p in layer.parameters()):
            p.grad = None
        del x, y
    return counted, result


def activation_rows(shape, batch, device, megatron_layer):
    """What layers keep: the running model's, attention in tiles, and Megatron's with dropout and scores.

    megatron_layer: a class whose layers are those of Korthikanti et al. 2022 (it is the tests').
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def less(layers):
        """A CPU's LayerNorm keeps its statistics in the dtype of its input, a GPU's in 4 bytes."""
        return 0 if torch.device(device).type == "cuda" else layers * 2 * 2 * 2 * batch * shape.sequence

    model = running_model(shape, device, torch.bfloat16)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        counted, result = kept_by(model.layers, shape, batch, device)
    a_layer = memory.layer_activation_bytes(shape, batch, dropout=False, fused=True, small=True)
    formula = shape.layers * a_layer + result - less(shape.layers)
    slack = 64 * shape.layers  # flash attention keeps the state of the random number generator
    what = "activations of its layers, bf16, attention in tiles"
    yield Row(what, formula, counted.kept, slack, counted.given)
    del model
    layer = megatron_layer(shape).to(device, torch.bfloat16)
    counted, result = kept_by([layer], shape, batch, device)
    formula = memory.layer_activation_bytes(shape, batch, small=True) + result - less(1)
    what = "activations of a layer with dropout and scores, sbh(34 + 5as/h)"
    yield Row(what, formula, counted.kept, 64, counted.given)


def cache_row(shape, batch, device):
    """Keys and values of a prompt, kept while the model writes."""
    import torch

    model = running_model(shape, device, torch.bfloat16)
    tokens = random_tokens(shape, batch, device)[:, :-1]
    cache = []
    for layer in model.layers:
        for linear in (layer.key, layer.value):
            linear.register_forward_hook(lambda module, x, y: cache.append(y))
    for _ in range(2):
        cache.clear()
        with torch.no_grad(), Counted(device) as counted:
            x = model.token(tokens) + model.position.weight[: tokens.shape[1]]
            for layer in model.layers:
                x = layer(x)
            del x
    formula = memory.kv_cache_bytes(shape, tokens.shape[1], batch)
    return Row("keys and values of a prompt, bf16", formula, counted.kept, 0, counted.given)


def peak_row(shape, batch, device):
    """The fullest moment of a step in bf16: more than the formula, which counts no temporary tensor."""
    import torch

    from allranks.model import loss_of

    tokens = random_tokens(shape, batch, device)
    model = running_model(shape, device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        loss_of(model, tokens).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with Counted(device) as counted:
        step()
    already = memory.zero_states(parameters(shape), 1, 0, "bf16")
    how = {"recipe": "bf16", "dropout": False, "fused": True}
    formula = memory.training_bytes(shape, microbatch=batch, **how).total
    fullest = already.weights + already.optimizer + counted.peak
    return Row("a whole step at its fullest, beside states and activations", formula, fullest, None, 0)


def rows(shape, batch, device, megatron_layer, failed):
    """All comparisons; `failed(what, error)` is told of those that could not be made."""
    found = []
    for what, counted in (
        ("states", lambda: state_rows(shape, device)),
        ("activations", lambda: activation_rows(shape, batch, device, megatron_layer)),
        ("keys and values", lambda: [cache_row(shape, batch, device)]),
        ("a whole step", lambda: [peak_row(shape, batch, device)]),
    ):
        try:
            found.extend(counted())
        except RuntimeError as error:  # an old GPU has no attention in tiles, a full one no memory
            failed(what, error)
    return found
