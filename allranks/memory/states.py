"""What do the model's states take: weights, gradients, and what the optimizer keeps?

Each parameter takes so many bytes in each state, as its recipe says. ZeRO shards over the data-parallel ranks
the optimizer's states (stage 1), the gradients too (stage 2), and the weights too (stage 3).
"""

from collections import namedtuple

from ..inputs import one_of, quantity, whole

STAGES = (0, 1, 2, 3)


FIELDS = "weights gradients gradient_copy master momentum variance"


class Recipe(namedtuple("Recipe", FIELDS)):
    """Bytes that a parameter takes in each state.

    weights, gradients: what forward and backward use and make. The optimizer's own: gradient_copy, the
    gradients in fp32 where the others are not; master, the weights in fp32 where the others are not; momentum
    and variance, Adam's two moments.
    """

    @property
    def optimizer(self):
        """Bytes a parameter of what the optimizer keeps, which stage 1 shards."""
        return self.gradient_copy + self.master + self.momentum + self.variance

    @property
    def bytes_per_parameter(self):
        """Bytes of all states of a parameter, nothing sharded."""
        return self.weights + self.gradients + self.optimizer


RECIPES = {
    # 16: weights and gradients of 2 bytes, three of 4 (Rajbhandari et al. 2020, section 3.1)
    "zero-16": Recipe(2, 2, 0, 4, 4, 4),
    # 18: gradients are summed over micro-batches in 4 bytes instead of 2 (Megatron-LM, bf16: 6 + 12/d)
    "megatron-18": Recipe(2, 4, 0, 4, 4, 4),
    # 20: gradients of 2 bytes, and the optimizer makes a copy of 4 (Megatron-LM, fp16: 4 + 16/d; DeepSpeed's
    # estimator of stage 2; Smith et al. 2022, section 2)
    "copied-20": Recipe(2, 2, 4, 4, 4, 4),
    # 16 as well, and no copies: everything in 4 bytes, as torch does unless told otherwise
    "fp32": Recipe(4, 4, 0, 0, 4, 4),
    # 8: everything in bf16, with nothing to catch small updates
    "bf16": Recipe(2, 2, 0, 0, 2, 2),
    # 8: no moments, in 4 bytes
    "sgd": Recipe(4, 4, 0, 0, 0, 0),
}
ZERO = RECIPES["zero-16"]


class States(namedtuple("States", "weights gradients optimizer")):
    """Bytes of the model's states on a rank."""

    @property
    def total(self):
        return self.weights + self.gradients + self.optimizer


def share(nbytes, ranks):
    """`nbytes` / `ranks`, a whole number where it is one."""
    return nbytes // ranks if isinstance(nbytes, int) and nbytes % ranks == 0 else nbytes / ranks


def recipe_of(recipe):
    """The `Recipe` itself, or the one of that name in `RECIPES`."""
    if recipe is ZERO:  # nearly always; a planner asks a hundred thousand times
        return recipe
    if isinstance(recipe, Recipe):
        for state, nbytes in zip(FIELDS.split(), recipe):
            quantity(f"recipe.{state}", nbytes)
        return recipe
    if isinstance(recipe, str) and recipe in RECIPES:
        return RECIPES[recipe]
    raise ValueError(f"recipe must be a Recipe or one of {', '.join(sorted(RECIPES))}, not {recipe!r}")


def zero_states(parameters, world_size, zero_stage, recipe=ZERO):
    """Bytes of weights, gradients and optimizer on each of `world_size` data-parallel ranks, as `States`.

    In 16 bytes, of which K = 12 are the optimizer's: stage 0: 16Ψ; 1: 4Ψ + 12Ψ/N; 2: 2Ψ + 14Ψ/N; 3: 16Ψ/N
    (Rajbhandari et al. 2020, section 5).
    """
    quantity("parameters", parameters), whole("world_size", world_size)
    one_of("zero_stage", zero_stage, STAGES)
    recipe = recipe_of(recipe)
    return States(
        share(recipe.weights * parameters, world_size if zero_stage >= 3 else 1),
        share(recipe.gradients * parameters, world_size if zero_stage >= 2 else 1),
        share(recipe.optimizer * parameters, world_size if zero_stage >= 1 else 1),
    )


def zero_bytes(parameters, world_size, zero_stage, recipe=ZERO):
    """Bytes of all states on each rank: the sum of `zero_states` (Rajbhandari et al. 2020, Figure 1)."""
    return zero_states(parameters, world_size, zero_stage, recipe).total


def trainable_parameters(nbytes, world_size, zero_stage, recipe=ZERO):
    """Parameters whose states fill `nbytes` on each rank (Rajbhandari et al. 2020, Table 2: 32 GB)."""
    quantity("nbytes", nbytes)
    return nbytes / zero_bytes(1, world_size, zero_stage, recipe)


def zero_sent_bytes(parameters, world_size, zero_stage, recipe=ZERO, microbatches=1, resharded=True):
    """Bytes each rank sends in a step, on a ring.

    Gradients are reduce-scattered, and what was made of them is all-gathered: gradients in stage 0 (an
    all-reduce), weights in stages 1 and 2: 2Ψ elements for many ranks. Stage 3 gathers the weights in forward
    and, `resharded` after it, again in backward: 3Ψ (Rajbhandari et al. 2020, section 7).
    With several micro-batches, stages 0 and 1 send once a step, stage 2 reduces after each, and stage 3
    gathers and reduces in each.
    """
    quantity("parameters", parameters), whole("world_size", world_size), whole("microbatches", microbatches)
    one_of("zero_stage", zero_stage, STAGES), one_of("resharded", resharded, (False, True))
    recipe = recipe_of(recipe)
    reduced, gathered = recipe.gradients, recipe.weights
    if zero_stage == 0:
        gathered = recipe.gradients
    if zero_stage >= 2:
        reduced *= microbatches
    if zero_stage == 3:
        gathered *= microbatches * (2 if resharded else 1)
    return (reduced + gathered) * parameters * (world_size - 1) / world_size


class Window(namedtuple("Window", "times calls sent beside")):
    """`calls` collectives that send `sent` bytes together, `times` a step, and what can run beside them.

    beside: "forward" or "backward" of one micro-batch.
    """


def zero_windows(parameters, world_size, zero_stage, recipe=ZERO, microbatches=1, units=1):
    """What a step sends for its states, as a list of `Window`: their bytes add up to `zero_sent_bytes`.

    Stage 0 all-reduces gradients beside the last backward (Li et al. 2020, section 3.2.3). Stages 1 and 2
    reduce-scatter them beside a backward and gather weights beside the next forward (Megatron Core's
    overlap_grad_reduce and overlap_param_gather). Stage 3 gathers beside forward, and gathers and reduces
    beside backward, in `units` pieces (Zhao et al. 2023, section 3.3).
    """
    whole("units", units), whole("microbatches", microbatches)
    zero_sent_bytes(parameters, world_size, zero_stage, recipe, microbatches)  # checks its inputs
    recipe = recipe_of(recipe)
    once = parameters * (world_size - 1) / world_size
    reduced, gathered = recipe.gradients * once, recipe.weights * once
    if zero_stage == 0:
        return [Window(1, 2, 2 * reduced, "backward")]
    if zero_stage == 3:
        both = Window(microbatches, 2 * units, gathered + reduced, "backward")
        return [Window(microbatches, units, gathered, "forward"), both]
    times = microbatches if zero_stage == 2 else 1
    return [Window(times, 1, reduced, "backward"), Window(1, 1, gathered, "forward")]


def shard_elements(rows, row_elements, world_size, rank):
    """Elements of a (rows, row_elements) tensor on `rank`, cut by rows as torch's `fully_shard` cuts.

    Each rank gets ceil(rows / world_size) rows as long as there are any: the last ranks may have fewer, or
    none.
    """
    whole("rows", rows, 0), whole("row_elements", row_elements), whole("world_size", world_size)
    whole("rank", rank, 0, world_size - 1)
    chunk = -(-rows // world_size)
    return max(0, min(rows - rank * chunk, chunk)) * row_elements
