"""A check says ✓ to a right answer and ✗, with a hint, to a wrong one; it never raises."""

import contextlib
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from verdicts import verdict

from allranks import check, launch, plan
from allranks.check import time_limit
from allranks.launch import stacks

DUALPIPE = check.zero_bubble_v.dualpipe.__wrapped__  # it calls the reader's function in the notebook


def test_whatever_happens_a_check_prints_a_line(capsys):
    def test(answer):
        if answer == "wrong":
            raise AssertionError("think again")
        return {"right": "well done"}[answer]

    one = check.exercise(test)
    assert verdict(capsys, one, "right") == "✓ well done"
    assert verdict(capsys, one, "wrong") == "✗ think again"
    assert verdict(capsys, one, "else") == "✗ This cannot be checked: KeyError: 'else'"


def test_a_function_that_ends_the_program_costs_a_line_and_not_the_notebook():
    def ends(*_):
        sys.exit("enough")

    first, place = check.verdict(DUALPIPE, ends).splitlines()
    assert first == "✗ Your function did not finish: it raised SystemExit: enough."
    assert place.endswith(f"test_check.py, line {ends.__code__.co_firstlineno + 1}, in ends")


def test_a_function_without_an_end_is_ended_also_in_the_notebook(monkeypatch):
    def loops(*_):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    monkeypatch.setattr(time_limit, "SECONDS", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    first, place = check.verdict(DUALPIPE, loops).splitlines()
    assert first == "✗ Your function did not finish: it was still running after 0.2 s."
    assert place.endswith("in loops")
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (before, (0, 0))


def test_only_the_reader_s_own_lines_have_a_time_limit(capsys, monkeypatch):
    def calls(*_):
        return launch(time.sleep, 1, world_size=1)[0]

    test = """
def test(answer):
    for _ in range(40):
        time.sleep(0.02)
    answer()
    return "it may take its time"
"""
    namespace = {"time": time}
    exec(compile(test, f"{stacks.PACKAGE}check/slow.py", "exec"), namespace)
    monkeypatch.setattr(time_limit, "SECONDS", 0.2)
    monkeypatch.setattr(time_limit, "LOOK", 0.05)
    assert verdict(capsys, check.exercise(namespace["test"]), calls) == "✓ it may take its time"


@pytest.mark.parametrize("answer", [float("nan"), float("inf"), "12", (12, 1), True, len, 10**400])
def test_what_is_no_finite_number_gets_no_other_hint(answer):
    for one in (check.five_axes.borrowed, check.gradient_averaging.gigabytes_sent, check.all_reduce.messages):
        line = check.verdict(one.__wrapped__, answer)
        assert "is not a number" in line or "is not an answer" in line, line


def test_without_assertions_no_answer_is_right():
    asked = "from allranks.check import verdict; print(verdict(lambda answer: 'right', 1))"
    told = subprocess.run(
        [sys.executable, "-O", "-c", asked], capture_output=True, text=True, check=True, timeout=600
    ).stdout
    assert told.startswith("✗ Nothing was checked") and told.count("\n") == 1


@pytest.mark.parametrize("answer", [None, 3, "swap"])
def test_what_is_no_function_is_no_answer(capsys, answer):
    for one in (check.ranks.swap, check.ranks.mean, check.gradient_averaging.hook):
        assert verdict(capsys, one, answer).startswith("✗")


def test_a_swap_that_returns_its_own_tensor_is_wrong(capsys):
    assert (
        verdict(capsys, check.ranks.swap, lambda mine: mine)
        == "✗ Rank 0 returned [0, 1, 2, 3]; expected [10, 11, 12, 13]."
    )


def test_a_swap_that_raises_is_named(capsys):
    def swap(mine):
        raise ValueError("no")

    assert "ranks 0, 1 raised ValueError: no" in verdict(capsys, check.ranks.swap, swap)


def test_below_it_stands_where_each_rank_was(capsys):
    def swap(mine):
        if dist.get_rank():
            raise ValueError("no")
        dist.recv(mine, 1)

    first, *places = verdict(capsys, check.ranks.swap, swap).splitlines()
    assert first == "✗ Your function did not finish: rank 1 raised ValueError: no."
    line, file = swap.__code__.co_firstlineno, "tests/check/test_check.py"
    assert places == [
        f"  rank 0: {file}, line {line + 3}, in swap, waiting in recv",
        f"  rank 1: {file}, line {line + 2}, in swap",
    ]


def test_a_mean_for_two_ranks_only_is_wrong(capsys):
    def mean(value):
        total = torch.tensor(value)
        dist.all_reduce(total)
        return total.item() / 2 if dist.get_rank() == 0 else None

    assert verdict(capsys, check.ranks.mean, mean) == "✗ With 4 ranks, rank 0 returned 3.0; the mean is 1.5."


def test_squares_out_of_order_are_wrong(capsys):
    def squares(numbers):
        return [n * n for rank in range(4) for n in numbers[rank::4]]

    assert "not in order" in verdict(capsys, check.ranks.squares, squares)


def test_a_reduce_that_lets_rank_0_receive_from_everybody_takes_too_many_rounds(capsys):
    def reduce(t):
        if dist.get_rank() > 0:
            return dist.send(t, dst=0)
        for source in range(1, dist.get_world_size()):
            theirs = torch.empty_like(t)
            dist.recv(theirs, src=source)
            t += theirs

    said = verdict(capsys, check.ranks.reduce, reduce)
    assert said == "✗ Rank 0 received 3 times; 2 rounds are enough."


@pytest.mark.parametrize("answer, mark", [(10, "✓"), (1023, "✗"), (9, "✗"), (None, "✗"), ("ten", "✗")])
def test_rounds(capsys, answer, mark):
    assert verdict(capsys, check.ranks.broadcast_rounds, answer)[0] == mark


@pytest.mark.parametrize("answer, mark", [(699.3, "✓"), (700, "✓"), (350, "✗"), (1400, "✗"), (None, "✗")])
def test_gigabytes(capsys, answer, mark):
    assert verdict(capsys, check.gradient_averaging.gigabytes_sent, answer)[0] == mark


def test_a_hook_that_sums_is_wrong(capsys):
    def hook(model):
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad) and None)

    assert "off by 300%" in verdict(capsys, check.gradient_averaging.hook, hook)


def test_an_average_without_weights_is_wrong(capsys):
    def average(model, count):
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)

    assert verdict(capsys, check.gradient_averaging.weighted_average, average).startswith(
        "✗ With batches of 26, 2"
    )


def test_a_layout_of_gpt_3_is_priced(capsys):
    said = [
        verdict(capsys, check.choosing_a_layout.gpt3_on_64, answer)
        for answer in (
            None,
            plan.layout(tp=8, pp=4),
            plan.layout(tp=8, pp=8, microbatches=64),
            plan.layout(dp=64, zero_stage=0, microbatches=2),
            plan.layout(tp=8, pp=8, zero_stage=0, microbatches=128, recomputation="full"),
            plan.layout(tp=8, pp=4, dp=2, zero_stage=1, microbatches=64, recomputation="selective"),
        )
    ]
    hints = (
        "Replace None with a plan.layout",
        "is 32; expected 64",
        "is 64; expected",
        "on a device of 80 GB",
        "It fits, with",
        "66 GB",
    )
    assert [hint in line for hint, line in zip(hints, said, strict=True)] == [True] * 6, said
    assert [line[0] for line in said] == ["✗"] * 5 + ["✓"]


def test_an_average_over_all_ranks_mixes_parts(capsys):
    def average(model, mesh):
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)

    assert "which ranks hold the same part" in verdict(capsys, check.choosing_a_layout.right_group, average)


@pytest.mark.parametrize("answer, mark", [(0.6, "✓"), (3.3, "✗"), (75, "✗"), (1, "✗"), (None, "✗")])
def test_a_faster_network(capsys, answer, mark):
    assert verdict(capsys, check.choosing_a_layout.faster_network, answer)[0] == mark


def test_the_checks_of_a_chapter_that_does_not_exist_name_those_that_do():
    with pytest.raises(AttributeError, match=r"no chapter has checks named 'rank'; there are .*\branks\b"):
        check.rank  # noqa: B018


def test_checks_of_other_chapters_are_not_imported():
    code = "import sys; from allranks import check; check.ranks; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert [name for name in done.stdout.split() if "allranks.check." in name] == [
        "allranks.check.passed",
        "allranks.check.time_limit",
        "allranks.check.stubs",
        "allranks.check.ranks",
    ]
