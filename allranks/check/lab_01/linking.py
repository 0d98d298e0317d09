"""Which GPUs have which link, and for which link does a ring of them wait?"""

import random

from allranks.check import exercise
from allranks.check.labs import is_written, on_ranks

KINDS = ("PIX", "PXB", "PHB", "NODE", "SYS")  # from the fastest; NVLinks are before them
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


@exercise
def links(answer, slowest):
    """`answer(table)` is the link of each pair of GPUs; `slowest(links, ring)` that of a ring."""
    is_written(answer, slowest)
    draw = random.Random(random.random())
    machines = [
        _machine(draw, 4, ["NV4"]),
        _machine(draw, 12, ["NV12", "NV4", "NV18"]),
        _machine(draw, 1, []),
    ]
    machines.append(_machine(draw, 3, ["NODE", "PXB"]))
    tables = [_table(draw, gpus, kinds, cards) for gpus, kinds, cards in machines]
    pairs = [on_ranks(lambda text: _as_list(answer(text)), table, world_size=1)[0] for table in tables]
    for (gpus, kinds, _), found, table in zip(machines, pairs, tables, strict=True):
        _are_links(found, gpus, kinds, table)
    rings = list(_rings(draw))
    for (ring, kinds), found in zip(
        rings, on_ranks(lambda: [slowest(dict(k), list(r)) for r, k in rings], world_size=1)[0], strict=True
    ):
        _is_slowest(found, ring, kinds)
    return (
        "Every pair of GPUs has its link, and a ring waits for its slowest one, including the link from the "
        "last GPU to the first."
    )


def _as_list(found):
    """Pairs and kinds as plain data, so that a wrong type can be named."""
    return list(found.items()) if isinstance(found, dict) else repr(found)


def _machine(draw, gpus, fast):
    """(GPUs, {(i, j): kind}, network cards): some pairs have one of the links `fast`, others one of PCIe."""
    pairs = [(i, j) for j in range(gpus) for i in range(j)]
    kinds = {pair: draw.choice([*fast, "SYS", "NODE", "PHB"]) for pair in pairs}
    return gpus, kinds | dict(zip(pairs, [*fast, "PIX"], strict=False)), draw.randrange(1, 4)


def _table(draw, gpus, kinds, cards):
    """What `nvidia-smi topo -m` prints for such a machine: tabs, an underlined header, cards, affinities."""
    names = draw.choice([[f"NIC{k}" for k in range(cards)], [f"mlx5_{k}" for k in range(cards)]])
    header = [f"GPU{k}" for k in range(gpus)] + names
    ends = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    lines = ["\t\x1b[4m" + "\t".join([*header, *ends]) + "\x1b[0m"]
    for i in range(gpus):
        cells = [" X " if i == j else kinds[min(i, j), max(i, j)] for j in range(gpus)]
        lines.append("\t".join([f"GPU{i}", *cells, *draw.choices(KINDS, k=cards), "0-31", "0", "", "N/A"]))
    for k, name in enumerate(names):
        cells = [" X " if k == other else "PIX" for other in range(cards)]
        lines.append("\t".join([name, *draw.choices(KINDS, k=gpus), *cells]))
    return "\n".join(lines) + "\n" + LEGEND


def _are_links(found, gpus, kinds, table):
    assert isinstance(found, list), f"links returned {found[:40]}; expected a dict of pairs of GPUs."
    found = {pair if isinstance(pair, tuple) else (pair,): kind for pair, kind in found}
    where = f"On a machine with {gpus} GPU{'s' * (gpus > 1)}"
    colours = any("\x1b" in str(part) for item in found.items() for part in item)
    assert not colours, f"{where}, {table.split()[0]!r} is not a name: remove the colour codes first."
    for pair in found:
        assert len(pair) == 2 and all(type(one) is int for one in pair), (
            f"{where}, {pair!r} is not a pair of GPU numbers such as (0, 1)."
        )
        assert pair in kinds or max(pair) < gpus, (
            f"{where} there is a link of {pair}: only pairs of GPUs count."
        )
        assert pair in kinds, f"{where}, {pair} is there: expected every pair once, as (i, j) with i < j."
    left_out = [pair for pair in kinds if pair not in found]
    hint = " GPU10 is a name too." if left_out and min(max(pair) for pair in left_out) >= 8 else ""
    if left_out and len({max(pair) for pair in left_out}) == 1:
        hint = " A name in the header may begin with colour codes: remove them first."
    assert not left_out, f"{where}, the link of GPUs {left_out[0]} is missing.{hint}"
    for pair, kind in kinds.items():
        assert found[pair] == kind, f"{where}, GPUs {pair} have the link {found[pair]!r}; expected {kind!r}."


def _rings(draw):
    """(GPUs in order, {(i, j): kind}) of rings that mistakes tell apart."""
    six = {(i, j): "NV12" for j in range(6) for i in range(j)}
    low, next_one, third, high = sorted(draw.sample(range(6), 4))
    a, b, c, d = order = draw.choice([[low, third, next_one, high], [third, low, high, next_one]])
    back, across = tuple(sorted((d, a))), tuple(sorted((a, c)))
    yield order, six | {back: "PHB"}  # only the way back is slow
    yield order, six | {across: "SYS", back: "NV4"}  # not neighbours; and 4 < 12, though "4" > "12"
    yield order, six | {tuple(sorted((b, c))): "PXB", tuple(sorted((c, d))): "PIX", back: "PHB"}
    yield [a, d], six | {back: "NODE", across: "SYS"}
    yield order, six | {tuple(sorted((b, c))): "NODE", back: "SYS"}


def _is_slowest(found, ring, kinds):
    pairs = [tuple(sorted(pair)) for pair in zip(ring, ring[1:] + ring[:1], strict=True)]
    along = [kinds[pair] for pair in pairs]

    def place(kind):
        return (0, -int(kind[2:])) if kind.startswith("NV") else (1 + KINDS.index(kind), 0)

    right = max(along, key=place)
    shown = f"The ring {ring} has the links {', '.join(along)}"
    if found not in along and isinstance(found, str):
        why = "only neighbours count, in the order of the ring"
    elif found in along and right == along[-1] and len(ring) > 2:
        why = "the ring goes back to the first GPU, and more NVLinks are faster"
    else:
        why = "the slowest link decides; more NVLinks are faster"
    assert found == right, f"{shown}; slowest returned {found!r}; expected {right!r}: {why}."
