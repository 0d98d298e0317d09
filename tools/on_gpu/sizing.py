"""Which model and which batch fill a device? Half of its memory for the states, the rest for a step.

The family: GPTs as deep as they have heads, an even number, each 128 wide. Weights of 2
bytes (autocast's copies) beside 4 (the optimizer's), gradients of 4: `allranks.memory`'s recipe
"megatron-18". Nothing is recomputed, and attention is computed in tiles.
"""

from allranks import memory
from allranks.transformer import PRESETS, decoder, parameters

RECIPE = "megatron-18"
USABLE = 0.9  # of the memory; the rest is for the driver, workspaces and what an allocator wastes
HEAD_WIDTH, SEQUENCE = 128, 2048
PADDED_TO = 128
VOCABULARY = -(-PRESETS["gpt2"].vocabulary // PADDED_TO) * PADDED_TO


def member(heads, width=HEAD_WIDTH, sequence=SEQUENCE, vocabulary=VOCABULARY):
    """The GPT with so many heads, and as many layers."""
    return decoder(heads, heads * width, heads, vocabulary, sequence, tied=False)


def largest(nbytes, **sizes):
    """The largest member of the family whose states take at most half of the usable bytes."""
    heads = 2
    while states(member(heads + 2, **sizes)) <= nbytes * USABLE / 2:
        heads += 2
    return member(heads, **sizes)


def states(model):
    """Bytes of weights, gradients and optimizer."""
    return memory.zero_bytes(parameters(model), 1, 0, RECIPE)


def step_bytes(model, batch):
    """Bytes of a step: states, what is kept for backward, and the logits' gradient beside a copy of it."""
    held = memory.training_bytes(model, microbatch=batch, recipe=RECIPE, dropout=False, fused=True).total
    return held + 2 * 4 * batch * model.sequence * model.vocabulary


def largest_batch(model, nbytes):
    """The largest batch whose step fits into the usable bytes; ValueError if not even one sequence does."""
    if step_bytes(model, 1) > nbytes * USABLE:
        raise ValueError(
            f"one sequence of {model.sequence} tokens needs {step_bytes(model, 1):,} bytes, and "
            f"{nbytes * USABLE:,.0f} of {nbytes:,} are usable: take a device with more memory"
        )
    batch = 1
    while step_bytes(model, batch + 1) <= nbytes * USABLE:
        batch += 1
    return batch


def smaller(batch):
    """The batches to try when one does not fit after all: an eighth less each time, at least one less."""
    while batch > 1:
        batch -= max(1, batch // 8)
        yield batch


def first_that_fits(attempt, batch, out_of_memory, between=lambda: None):
    """(batch, attempt(batch)) for the first batch, from `batch` down, that does not run out of memory.

    out_of_memory: the exception that says so; between: called after each, to give memory back.
    """
    for size in [batch, *smaller(batch)]:
        try:
            return size, attempt(size)
        except out_of_memory:
            pass
        between()  # outside of except: the exception's frames hold the tensors
    raise MemoryError(f"not even one sequence fits, where {batch} were predicted to")
