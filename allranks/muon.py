"""What does an optimizer cost that needs whole matrices? FLOPs, and bytes that a rank sends, beside AdamW's.

Weights of n elements are updated on slices, as in ZeRO: gradients are reduce-scattered and weights
all-gathered, in 4 bytes an element each (Liu et al. 2025, section 2.3). Muon has to put each matrix together
in between, in 2 bytes: on all ranks that hold a piece of it, or on one, its owner, which sends pieces back.
"""

from allranks import collectives
from allranks.inputs import one_of, quantity, whole


def newton_schulz_flops(rows, columns, steps=5):
    """Return the FLOPs of orthonormalising a matrix: 2(2nm² + m³) a step, where m is its shorter side."""
    whole("rows", rows), whole("columns", columns), whole("steps", steps)
    m, n = min(rows, columns), max(rows, columns)
    return steps * 2 * (2 * n * m * m + m * m * m)


def overhead(dimension, tokens, steps=5, copies=1):
    """Return FLOPs of Newton-Schulz over those of forward and backward, at most: steps · dimension / tokens.

    copies: how many ranks orthonormalise the same matrix; each does what one would have to do.
    """
    whole("dimension", dimension), whole("tokens", tokens), whole("steps", steps), whole("copies", copies)
    return copies * steps * dimension / tokens


def adamw_bytes(elements, world_size, nbytes=4):
    """Return the bytes a rank sends for AdamW on slices: a reduce-scatter and an all-gather of `elements`."""
    quantity("elements", elements), whole("world_size", world_size), whole("nbytes", nbytes)
    scattered = collectives.ring_reduce_scatter_bytes(elements * nbytes, world_size)
    return scattered + collectives.ring_all_gather_bytes(elements * nbytes, world_size)


def pieces(sizes, world_size):
    """Return for each matrix on how many ranks it lies if equal slices of one flat vector are cut.

    sizes: elements of the matrices, in their order in the vector.
    """
    whole("world_size", world_size)
    length = -(-sum(whole("a size in sizes", size) for size in sizes) // world_size)
    holders, start = [], 0
    for size in sizes:
        holders.append((start + size - 1) // length - start // length + 1)
        start += size
    return holders


def gather_bytes(sizes, holders, world_size, nbytes=2):
    """Return the bytes a rank sends, on average, so that each rank that holds a piece has the whole matrix.

    holders: for each matrix, on how many ranks it lies; each of them receives what it does not hold.
    """
    whole("world_size", world_size), whole("nbytes", nbytes)
    if len(sizes) != len(holders):
        raise ValueError(f"holders must be {len(sizes)} numbers, one for each size, not {len(holders)}")
    received = 0
    for size, ranks in zip(sizes, holders):
        received += whole("a size in sizes", size) * (whole("a number in holders", ranks, 1, world_size) - 1)
    return nbytes * received / world_size


def owner_bytes(elements, world_size, nbytes=2):
    """Return the bytes a rank sends, on average, to bring its pieces to their owners, and results back."""
    quantity("elements", elements), whole("world_size", world_size), whole("nbytes", nbytes)
    return 2 * collectives.all_to_all_bytes(elements * nbytes / world_size, world_size)


def owners(costs, world_size):
    """Return an owner for each matrix: the most expensive first, to the rank that has least so far."""
    whole("world_size", world_size)
    loads, chosen = [0] * world_size, [0] * len(costs)
    for k in sorted(range(len(costs)), key=lambda k: (-quantity("a cost in costs", costs[k]), k)):
        chosen[k] = loads.index(min(loads))
        loads[chosen[k]] += costs[k]
    return chosen


def needs(optimizer, rows, columns, rank=1):
    """Return elements that an optimizer keeps for a matrix, and those that it puts together in a step.

    AdamW keeps two moments. Muon keeps the momentum and needs all of it. Shampoo keeps a statistic for either
    side, and all-gathers the update (Shi et al. 2023). Dion keeps the momentum and one factor with `rank`
    columns; its two factors are computed from slices (Ahn et al. 2025, Algorithm 1).
    """
    whole("rows", rows), whole("columns", columns), whole("rank", rank, 1, min(rows, columns))
    one_of("optimizer", optimizer, ("AdamW", "Muon", "Shampoo", "Dion"))
    return {
        "AdamW": (2 * rows * columns, 0),
        "Muon": (rows * columns, rows * columns),
        "Shampoo": (rows * rows + columns * columns, rows * columns),
        "Dion": (rows * columns + columns * rank, (rows + columns) * rank),
    }[optimizer]
