"""The exercises of the chapter Beyond one machine."""

from allranks import collectives, hardware
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_number, is_returned

NODES, GPUS = 2, 4
GRADIENTS = 8e9
DAYS, INTERRUPTIONS, UNEXPECTED, TRAINED_ON, ASKED = 54, 466, 419, 16384, 128


def slurm_tasks(tasks, cyclic=False):
    """What Slurm sets for every task of a step with so many `tasks` on each node, by rank."""
    order = [(node, local) for node, count in enumerate(tasks) for local in range(count)]
    if cyclic:
        order.sort(key=lambda place: (place[1], place[0]))
    short = ",".join(str(count) for count in tasks)
    if len(set(tasks)) == 1 and len(tasks) > 1:
        short = f"{tasks[0]}(x{len(tasks)})"
    return [
        {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(local),
            "SLURM_NODEID": str(node),
            "SLURM_NTASKS": str(len(order)),
            "SLURM_NNODES": str(len(tasks)),
            "SLURM_TASKS_PER_NODE": short,
        }
        for rank, (node, local) in enumerate(order)
    ]


@exercise
def contract(answer):
    """`answer(slurm)` turns Slurm's variables of a task into the five numbers of torchrun's contract."""
    for tasks, cyclic in (((2, 2), False), ((2, 2), True), ((4,), False), ((2, 1), False), ((3, 1, 2), True)):
        how = "cyclic" if cyclic else "block"
        for slurm in slurm_tasks(tasks, cyclic):
            got = answer(dict(slurm))
            is_returned(got)
            expected = {
                "RANK": int(slurm["SLURM_PROCID"]),
                "LOCAL_RANK": int(slurm["SLURM_LOCALID"]),
                "GROUP_RANK": int(slurm["SLURM_NODEID"]),
                "WORLD_SIZE": sum(tasks),
                "LOCAL_WORLD_SIZE": tasks[int(slurm["SLURM_NODEID"])],
            }
            for name, number in expected.items():
                assert name in got, f"The function's result lacks {name}."
                assert got[name] == number, (
                    f"Task {slurm['SLURM_PROCID']} of nodes with {list(tasks)} tasks ({how}): {name} "
                    f"should be {number}, not {got[name]!r}."
                )
    return "All five numbers are right, in block and cyclic order, on equal and unequal nodes."


@exercise
def placement(answer):
    """`answer` lists the two TP groups of 2 × 4 GPUs whose ranks are dealt out in turn over two nodes."""
    is_filled(answer, "two lists of ranks")
    ranks = sorted(rank for group in answer for rank in group)
    assert ranks == list(range(NODES * GPUS)), "Each of the ranks 0 to 7 should be in exactly one group."
    assert sorted(map(len, answer)) == [GPUS] * NODES, (
        "There should be two groups of four ranks, since TP is 4."
    )
    for group in answer:
        on = {rank % NODES for rank in group}
        assert len(on) == 1, (
            f"The group {sorted(group)} spans the nodes {sorted(on)}: rank r is on node r % 2."
        )
    return "TP stays inside a node, and each DP pair, such as (0, 1), crosses once a step."


@exercise
def all_reduce(answer):
    """`answer` is how many milliseconds 8 GB take on two nodes of four H100s, in two levels, without α."""
    is_number(answer)
    nvlink, card = hardware.LINKS["nvlink-4"], hardware.LINKS["infiniband-ndr"]
    levels = collectives.hierarchical_all_reduce(GRADIENTS, GPUS, NODES)
    inside, across = levels.intra.seconds(0, nvlink.β) * 1e3, levels.inter.seconds(0, card.β) * 1e3
    flat = collectives.ring_all_reduce(GRADIENTS, NODES * GPUS).seconds(0, card.β) * 1e3

    def is_about(number):
        return abs(answer / number - 1) < 0.01

    assert not is_about(flat), "That is one flat ring, at the speed of its slowest link; use both levels."
    assert not is_about(across), (
        "That is the time between the nodes; add what NVLink carries before and after."
    )
    assert not is_about(inside), (
        "That is the time inside a node; a quarter of the message also goes to the other node."
    )
    assert is_about(inside + across), (
        f"{answer:g} ms is not right: how many bytes does a rank send inside its node, and how many across?"
    )
    return f"{inside + across:.1f} ms: {inside:.1f} inside and {across:.1f} across."


@exercise
def interruptions(answer):
    """`answer` is how many hours pass between two interruptions on 128 GPUs, in proportion to Llama 3's."""
    is_number(answer)
    here = DAYS * 24 / INTERRUPTIONS
    expected = here * TRAINED_ON / ASKED
    assert abs(answer / here - 1) > 0.02, "That is for 16,384 GPUs; 128 are interrupted less often."
    assert abs(answer / (here * ASKED / TRAINED_ON) - 1) > 0.02, (
        "That is the wrong way round: fewer GPUs run longer between interruptions."
    )
    wrong = DAYS * 24 / UNEXPECTED * TRAINED_ON / ASKED
    assert abs(answer / wrong - 1) > 0.02, "Those are only the unexpected interruptions; count all 466."
    assert abs(answer / expected - 1) < 0.02, (
        f"{answer:g} hours is not right: how long between interruptions of 16,384 GPUs, and of 128?"
    )
    return f"{expected:.0f} hours, about {expected / 24:.0f} days."
