"""The checks of the chapter Beyond one machine say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks.check import beyond_one_machine as beyond


def contract(slurm, **instead):
    tasks = []
    for part in slurm["SLURM_TASKS_PER_NODE"].split(","):
        count, _, times = part.rstrip(")").partition("(x")
        tasks += [int(count)] * int(times or 1)
    node = int(slurm["SLURM_NODEID"])
    return {
        "RANK": int(slurm["SLURM_PROCID"]),
        "LOCAL_RANK": int(slurm["SLURM_LOCALID"]),
        "GROUP_RANK": node,
        "WORLD_SIZE": int(slurm["SLURM_NTASKS"]),
        "LOCAL_WORLD_SIZE": tasks[node],
        **instead,
    }


def all_alike(slurm):
    return contract(slurm, LOCAL_WORLD_SIZE=int(slurm["SLURM_NTASKS"]) // int(slurm["SLURM_NNODES"]))


def always_in_blocks(slurm):
    local_size = contract(slurm)["LOCAL_WORLD_SIZE"]
    return contract(slurm, LOCAL_RANK=int(slurm["SLURM_PROCID"]) % local_size)


def strings(slurm):
    return contract(slurm, RANK=slurm["SLURM_PROCID"])


@pytest.mark.parametrize(
    "answer, said",
    [
        (contract, "✓ All five numbers are right, in"),
        (all_alike, "✗ Task 0 of nodes with [2, 1] tasks (block): LOCAL_WORLD_SIZE should be 2, not 1."),
        (always_in_blocks, "✗ Task 1 of nodes with [2, 2] tasks (cyclic): LOCAL_RANK should be 0, not 1."),
        (strings, "RANK should be 0, not '0'"),
        (lambda slurm: {"RANK": int(slurm["SLURM_PROCID"])}, "LOCAL_RANK."),
        (lambda slurm: None, "✗ The function returns nothing yet."),
        (None, "✗ This cannot be checked: TypeError"),
    ],
)
def test_slurms_names(capsys, answer, said):
    assert said in verdict(capsys, beyond.contract, answer)


def test_the_form_of_slurms_variables_is_that_of_slurm():
    given = [beyond.slurm_tasks((2, 2))[2], beyond.slurm_tasks((2, 2), cyclic=True)[2]]
    assert [(task["SLURM_NODEID"], task["SLURM_LOCALID"]) for task in given] == [("1", "0"), ("0", "1")]
    assert given[0]["SLURM_TASKS_PER_NODE"] == "2(x2)"
    assert beyond.slurm_tasks((2, 1))[0]["SLURM_TASKS_PER_NODE"] == "2,1"


@pytest.mark.parametrize(
    "one_check, answer, said",
    [
        (beyond.placement, [[0, 2, 4, 6], [1, 3, 5, 7]], "✓ TP stays inside a node"),
        (beyond.placement, [(7, 5, 3, 1), (6, 4, 2, 0)], "✓"),
        (beyond.placement, [[0, 1, 2, 3], [4, 5, 6, 7]], "[0, 1, 2, 3] spans the nodes [0, 1]"),
        (beyond.placement, [[0, 2], [4, 6], [1, 3], [5, 7]], "✗ There should be two groups of four"),
        (beyond.placement, [[0, 2, 4, 6], [1, 3, 5, 5]], "✗ Each of the ranks 0 to 7"),
        (beyond.placement, None, "✗ Replace None with two lists"),
        (beyond.all_reduce, 12 / 450 * 1e3 + 40, "✓ 66.7 ms: 26.7 inside and 40.0 across."),
        (beyond.all_reduce, 280, "✗ That is one flat ring"),
        (beyond.all_reduce, 40, "✗ That is the time between the nodes"),
        (beyond.all_reduce, 26.7, "✗ That is the time inside"),
        (beyond.all_reduce, 100, "ms is not right"),
        (beyond.all_reduce, None, "✗ Replace None with a number"),
        (beyond.interruptions, 356, "✓ 356 hours, about 15 days."),
        (beyond.interruptions, 2.78, "✗ That is for 16,384 GPUs"),
        (beyond.interruptions, 2.78 / 128, "✗ That is the wrong way round"),
        (beyond.interruptions, 396, "✗ Those are only the unexpected"),
        (beyond.interruptions, 100, "hours is not right"),
        (beyond.interruptions, None, "✗ Replace None with a number"),
    ],
)
def test_one_number_or_two_groups(capsys, one_check, answer, said):
    assert said in verdict(capsys, one_check, answer)
