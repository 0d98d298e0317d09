"""The exercise of the chapter on checkpoints."""

import torch

from allranks.check import exercise

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
                assert part is not None, "The function returned None; return a rank's rows."
                assert not isinstance(part, int | float), (
                    "The function returned a number; return a tensor or a list of rows."
                )
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
            assert not read, f"{where} {len(read)} rows were read twice: begin at `consumed`."
            missing = set(expected) - set(found)
            assert not missing, (
                f"{where} {len(missing)} of the next {BATCH} rows in order were left out: together the "
                "ranks read one batch, whatever their number."
            )
            consumed += BATCH
    return "Each row is read once, even when four ranks become three."
