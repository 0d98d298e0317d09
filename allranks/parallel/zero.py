"""What does each rank hold when none holds everything? ZeRO 0 to 3, on slices of one vector a unit.

A unit is a module whose parameters lie in one vector; each rank owns an equal slice of it. The stages differ
in when the whole weights and the whole gradients of a unit exist (Rajbhandari et al. 2020, section 5). They
assume an optimizer that updates each element by itself, as SGD and Adam do.
"""

import torch
import torch.distributed as dist


def views(flat, parameters):
    """Yield, for each parameter, its piece of the vector `flat`, in its shape."""
    start = 0
    for p in parameters:
        yield flat[start : start + p.numel()].view(p.shape)
        start += p.numel()


def flatten(parameters):
    """Move parameters into one vector, zeros at its end so that the number of ranks divides it."""
    length = sum(p.numel() for p in parameters)
    padding = -length % dist.get_world_size()
    flat = parameters[0].detach().new_zeros(length + padding)
    for p, view in zip(parameters, views(flat, parameters), strict=True):
        view.copy_(p.detach())
        p.data = view
    return flat


def my_slice(flat):
    """Return this rank's part of a vector: a view."""
    return flat.chunk(dist.get_world_size())[dist.get_rank()]


def free(flat):
    """Give the memory of a vector back, whoever still has a view of it."""
    flat.untyped_storage().resize_(0)


def gather(flat, mine):
    """Fill a vector, freed or not, from the slices `mine` of all ranks."""
    flat.untyped_storage().resize_(flat.nbytes)
    dist.all_gather_single(flat, mine)


def around_backward(module, parameters, before, after):
    """Call `before()` when backward comes to the module, `after()` when all `parameters` have gradients."""
    arrived = 0

    def forward_is_done(module, inputs, output):
        if output.requires_grad:  # not where the model only draws
            output.register_hook(lambda gradient: before())

    def has_gradient(p):
        nonlocal arrived
        arrived = (arrived + 1) % len(parameters)
        if arrived == 0:
            after()

    module.register_forward_hook(forward_is_done)
    for p in parameters:
        p.register_post_accumulate_grad_hook(has_gradient)


class Unit:
    """A module's parameters as one vector, `weights`, and the slice of it that is `mine` to update.

    parameters: of the module, those that are in no other unit; each has to get a gradient in backward.
    """

    def __init__(self, module, parameters):
        self.parameters = parameters
        self.weights = flatten(parameters)
        self.mine = my_slice(self.weights)

    def make_gradients(self):
        """Let backward write into one vector, `gradients`."""
        self.gradients = torch.zeros_like(self.weights)
        for p, view in zip(self.parameters, views(self.gradients, self.parameters), strict=True):
            p.grad = view

    def reduce_gradients(self):
        """Return my slice of the gradients, averaged over the ranks: a view."""
        mine = my_slice(self.gradients)
        dist.reduce_scatter_single(mine, self.gradients, op=dist.ReduceOp.AVG)
        return mine


class Zero0(Unit):
    """Stage 0, data parallelism: whole weights, whole gradients, and the whole optimizer."""

    def __init__(self, module, parameters):
        super().__init__(module, parameters)
        self.mine = self.weights
        self.make_gradients()

    def before_step(self):
        dist.all_reduce(self.gradients, op=dist.ReduceOp.AVG)
        self.mine.grad = self.gradients

    def after_step(self):
        self.gradients.zero_()


class Zero1(Unit):
    """Stage 1: whole weights, whole gradients, and a slice of the optimizer."""

    def __init__(self, module, parameters):
        super().__init__(module, parameters)
        self.make_gradients()

    def before_step(self):
        self.mine.grad = self.reduce_gradients()

    def after_step(self):
        dist.all_gather_single(self.weights, self.mine)
        self.gradients.zero_()


class Zero2(Unit):
    """Stage 2: as stage 1, and whole gradients only while backward is in the module."""

    def __init__(self, module, parameters):
        super().__init__(module, parameters)
        around_backward(module, parameters, self.before_backward, self.after_backward)

    def before_backward(self):
        self.make_gradients()

    def after_backward(self):
        mine = self.reduce_gradients().clone()
        self.mine.grad = mine if self.mine.grad is None else self.mine.grad + mine
        free(self.gradients)
        for p in self.parameters:
            p.grad = None

    def before_step(self):
        pass

    def after_step(self):
        dist.all_gather_single(self.weights, self.mine)
        self.mine.grad = None


class Zero3(Zero2):
    """Stage 3: as stage 2, and whole weights only while forward or backward is in the module."""

    def __init__(self, module, parameters):
        super().__init__(module, parameters)
        self.mine = self.mine.clone()
        free(self.weights)
        module.register_forward_pre_hook(lambda *_: self.before_forward())
        module.register_forward_hook(lambda *_: self.after_forward())

    def before_forward(self):
        gather(self.weights, self.mine)

    def after_forward(self):
        free(self.weights)

    def before_backward(self):
        gather(self.weights, self.mine)
        super().before_backward()

    def after_backward(self):
        super().after_backward()
        free(self.weights)

    def after_step(self):
        self.mine.grad = None


def shard(stage, modules):
    """Return a unit of `stage` (Zero0 to Zero3) for each module.

    It has the module's parameters without those of the modules before it: list the parts, and then the whole.
    """
    units, taken = [], set()
    for module in modules:
        parameters = [p for p in module.parameters() if p not in taken]
        taken.update(parameters)
        units.append(stage(module, parameters))
    return units


def step(optimizer, units):
    """Take the optimizer's step on this rank's slices, and send what the stage sends before and after it."""
    for unit in units:
        unit.before_step()
    optimizer.step()
    for unit in units:
        unit.after_step()
