"""The exercises of the chapter on checkpoints."""

import torch

from allranks.check import exercise
from allranks.check.stubs import is_filled

BATCH, STAGES = 12, ((4, 3), (3, 4))  # (ranks, steps): three steps on four ranks, then four on three


@exercise
def rows(answer):
    """`answer(order, consumed, batch, rank, ranks)`: this rank's rows of the next batch."""
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    consumed = 0
    for ranks, steps in STAGES:
        for _ in range(steps):
            parts = []
            for rank in range(ranks):
                part = answer(order.clone(), consumed, BATCH, rank, ranks)
                assert part is not None, "Return a rank's rows; None came back."
                assert not isinstance(part, int | float), "Return a tensor or a list of rows, not a number."
                parts.append(torch.as_tensor(part).flatten().tolist())
            found = [row for part in parts for row in part]
            expected = order[consumed : consumed + BATCH].tolist()
            where = f"On {ranks} ranks, with {consumed} rows consumed,"
            assert set(map(len, parts)) == {BATCH // ranks}, (
                f"{where} the ranks got {', '.join(str(len(part)) for part in parts)} rows: "
                f"each should get {BATCH // ranks}."
            )
            assert len(set(found)) == len(found), f"{where} two ranks got the same row."
            read = set(order[:consumed].tolist()) & set(found)
            assert not read, f"{where} {len(read)} rows were read again: begin at `consumed`."
            missing = set(expected) - set(found)
            assert not missing, (
                f"{where} {len(missing)} of the next {BATCH} rows of the order were left out: "
                "the ranks share one batch, whatever their number."
            )
            consumed += BATCH
    return "Each row is read once, also after four ranks have become three."


@exercise
def host(answer):
    """`answer`: gigabytes of staged copies on a node, with two saves of 70 billion parameters in flight."""
    is_filled(answer)
    whole = 70 * 14
    right = 2 * whole / 8
    assert abs(answer - right * 1e9) > 1, "In bytes that is right; the question asks for gigabytes."
    assert abs(answer - right / 2) > 0.5, (
        "That is one save: the first copy is still there when the next is made."
    )
    assert abs(answer - right / 8) > 0.5, "That is one rank's share; eight ranks use the memory of one node."
    assert abs(answer - right / 16) > 0.5, "That is one copy of one rank: eight ranks, and two saves."
    assert abs(answer - 2 * 70 * 16 / 8) > 0.5, "Gradients are not saved: 14 bytes a parameter, not 16."
    assert min(abs(answer - whole), abs(answer - 2 * whole)) > 0.5, (
        "That is the whole job; how much of it is on one of the eight nodes?"
    )
    assert abs(answer - right) < 0.5, (
        f"{answer:g} GB is not it: 14 bytes a parameter, 64 ranks, 8 a node, two copies."
    )
    return f"{right:g} GB: two copies of an eighth of 980 GB."
