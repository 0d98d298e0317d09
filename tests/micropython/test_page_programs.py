"""Ranks in the page: the same programs in MicroPython and in CPython, from the very files that pages ship."""

import pytest
import torch
from page_python import InCPython, InMicroPython, program


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """A function that asks both Pythons, demands the same answer, and returns it."""
    here, there = InCPython(tmp_path_factory.mktemp("c")), InMicroPython(tmp_path_factory.mktemp("m"))

    def ask_both(**question):
        answer = here.ask(**question)
        assert there.ask(**question) == answer
        return answer

    yield ask_both
    here.close()
    there.close()


AROUND = """
def around():
    rank, p = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank > 0:
        dist.recv(token, src=rank - 1)
    token += rank
    dist.send(token, dst=(rank + 1) % p)
    if rank == 0:
        dist.recv(token, src=p - 1)
    return token.item()


launch(around, world_size=4)
"""


def test_a_program_is_run_drawn_and_told(ask):
    told = ask(**program(AROUND))
    assert told["printed"] == "[6.0, 1.0, 3.0, 6.0]\n" and told["failure"] is None
    assert (told["worlds"], told["steps"]) == (1, 4)
    assert told["text"].startswith("4 messages on 4 ranks in 40 µs; a rank sends at most 4 B")
    assert told["ranks"][1] == "rank 1: sent 4 B, waited 20 µs, returned 1.0"
    assert told["svg"].count("→") == 4


def test_a_step_names_the_message_and_both_lines(ask):
    ask(**program(AROUND))
    first = ask(world=0, step=1, narrow=True)
    assert first["text"] == "1 of 4: rank 0 → rank 1: 1 float32: 0; 4 B, from 0 s to 10 µs."
    assert first["lines"] == [[8, "rank 0 sends"], [6, "rank 1 receives"]]
    assert first["svg"].count("→") == 1


CONSTRUCTS = {
    "a generator, a comprehension and a sort": (
        """
def total(n):
    t = torch.tensor(n)
    dist.all_reduce(t)
    return t.item()

def program():
    rows = [total(k) for k in (1, 2)]
    rows += sorted([3, 1], key=lambda k: -total(k))
    return sum(total(k) for k in range(3)), rows

launch(program, world_size=2)[0]
""",
        "(6, [2, 4, 3, 1])\n",
    ),
    "a class with a property, and a context manager": (
        """
class Sum:
    def __init__(self):
        self.t = torch.ones(1)
        dist.all_reduce(self.t)
    @property
    def twice(self):
        dist.all_reduce(self.t)
        return self.t.item()
    def __enter__(self):
        dist.barrier()
        return self
    def __exit__(self, *error):
        dist.barrier()

def program():
    with Sum() as s:
        return s.twice

launch(program, world_size=2)
""",
        "[4.0, 4.0]\n",
    ),
    "a bare except and a finally": (
        """
def program():
    done = []
    try:
        dist.barrier()
    except:
        done.append("never")
    finally:
        done.append(1)
    t = torch.ones(2)
    dist.all_reduce(t)
    return t.tolist(), done

launch(program, world_size=2)[1]
""",
        "([2.0, 2.0], [1])\n",
    ),
    "what MicroPython does in another way": (
        """
def program():
    t = torch.ones(4)
    half = t[2:]
    half *= 2 + 1
    half /= 2  # a comment
    n = 5
    n *= 2; n //= 3
    if n: n **= 2
    dist.barrier()
    return t.tolist(), n, (n + 7).bit_length(), "x *= 1"

launch(program, world_size=2)[0]
""",
        "([1.0, 1.0, 1.5, 1.5], 9, 5, 'x *= 1')\n",
    ),
    "groups, a late work, and an object": (
        """
def program():
    rank = dist.get_rank()
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    t = torch.tensor(rank)
    work = dist.all_reduce(t, group=groups[rank % 2], async_op=True)
    before = t.item()
    work.wait()
    names = [None] * 4
    dist.all_gather_object(names, f"rank {rank}")
    return before, t.item(), names[3]

launch(program)
""",
        "[(0, 2, 'rank 3'), (1, 4, 'rank 3'), (2, 2, 'rank 3'), (3, 4, 'rank 3')]\n",
    ),
    "prints of ranks and of the program around": (
        """
def program():
    print("before")
    dist.barrier()
    print("after", dist.get_rank())

print("first")
_ = launch(program, world_size=2)
print("last")
""",
        "first\n[rank 0] before\n[rank 0] after 0\n[rank 1] before\n[rank 1] after 1\nlast\n",
    ),
    "nothing is shared between ranks": (
        "seen = []\ndef program():\n    seen.append(dist.get_rank())\n    return seen\n"
        "launch(program, world_size=3), seen",
        "([[0], [1], [2]], [])\n",
    ),
    "a failure that the program catches": (
        "def program():\n    raise ValueError('no')\ntry:\n    launch(program, world_size=2)\n"
        "except Exception as error:\n    print(type(error).__name__, error)",
        "RankFailed ranks 0, 1 raised ValueError: no\n",
    ),
}


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_ordinary_python_blocks(ask, construct):
    source, printed = CONSTRUCTS[construct]
    told = ask(**program(source))
    assert told["printed"] == printed, told["exception"]


def on_ranks(body, size=2):
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    return (
        f"def program():\n    rank = dist.get_rank()\n{lines}\nlaunch(program, world_size={size}, timeout=2)"
    )


REFUSED = {
    "dist.recv(torch.ones(1), 1 - rank)": (
        "deadlock: rank 0 waits in recv from rank 1 (line 3, in program); "
        "rank 1 waits in recv from rank 0 (line 3, in program)",
        "RanksTimedOut: ranks 0, 1 were still running after 2 s",
        [3, 3],
    ),
    "dist.all_reduce(torch.ones(5 if rank else 3))": (
        "rank 0 entered all_reduce with (3,) Float · rank 1 entered all_reduce with (5,) Float "
        "(line 3, in program)",
        "RankFailed: rank 0 entered all_reduce with (3,) Float · rank 1 entered all_reduce with (5,) Float",
        [3],
    ),
    "if rank:\n    dist.barrier()": (
        "rank 0 returned while rank 1 waits in barrier (line 4, in program)",
        "RankFailed: rank 0 returned while rank 1 was still waiting in barrier",
        [4],
    ),
    "if rank:\n    raise ValueError('no data')\ndist.barrier()": (
        "rank 1 raised ValueError: no data (line 4, in program)",
        "RankFailed: rank 1 raised ValueError: no data",
        [5, 4],
    ),
    "torch.nn.Linear(2, 2)": (
        "ranks 0, 1 raised AttributeError: the page's torch has no torch.nn; "
        "open the notebook for the real one (line 3, in program)",
        "RankFailed: ranks 0, 1 raised AttributeError: the page's torch has no torch.nn; "
        "open the notebook for the real one",
        [3, 3],
    ),
    "for _ in range(1000):\n    dist.recv(torch.ones(1), 1) if rank == 0 else dist.send(torch.ones(1), 0)": (
        "rank 0 has waited 150 times, too often for the page; the notebook has no limit (line 4, in program)",
        "RankFailed: rank 0 has waited 150 times, too often for the page; the notebook has no limit",
        [4],
    ),
}


@pytest.mark.parametrize("body", REFUSED)
def test_a_refusal_is_one_sentence_at_its_line(ask, body):
    sentence, exception, lines = REFUSED[body]
    told = ask(**program(on_ranks(body)))
    assert told["exception"] == exception
    assert told["failure"] == sentence
    assert [line for line, _ in told["lines"]] == lines


def test_the_rules_of_nccl_are_refused(ask):
    told = ask(**program("launch(dist.barrier, world_size=2, rules='nccl')"))
    assert told["failure"].startswith("ValueError: ranks in the page follow gloo's rules, not 'nccl'")


def test_what_is_no_python_is_named_with_its_line(ask):
    told = ask(**program("x = 1\ndef f(:\n    pass"))
    assert told["failure"] == "this is not Python (line 2)" and told["lines"][0][0] == 2


def test_a_rank_that_calls_itself_for_ever_is_stopped(ask):
    told = ask(**program(on_ranks("def f():\n    return f()\nf()")))
    assert told["failure"].startswith("rank 0 was stopped: it calls itself too deeply (line 4")


def test_a_flood_of_prints_is_cut(ask):
    told = ask(**program("for i in range(3000):\n    print('x' * 100)"))
    assert len(told["printed"]) < 101_000
    assert told["printed"].endswith("\n… the rest is not shown\n")


def test_the_markup_of_a_value_stays_text(ask):
    told = ask(**program(on_ranks("raise ValueError('<img src=x onerror=alert(1)>')")))
    assert "<img" not in told["svg"] and "<img" in told["failure"]


def test_random_numbers_of_the_program_and_of_a_rank_are_torchs(ask):
    drawn = """
def draw(t):
    torch.manual_seed(dist.get_rank())
    dist.barrier()
    return f"{(torch.randn(3).sum() + t.sum()).item():.3f}"


torch.manual_seed(0)
x = torch.randn(4, 5)
launch(draw, x, world_size=2)
"""
    torch.manual_seed(0)
    x, expected = torch.randn(4, 5), []
    for rank in range(2):
        torch.manual_seed(rank)
        expected.append(f"{(torch.randn(3).sum() + x.sum()).item():.3f}")
    assert ask(**program(drawn))["printed"] == f"{expected}\n"


def test_zip_is_strict_where_it_should_be(ask):
    both = "print(list(zip([1, 2], 'ab', strict=True)))\nprint(list(zip([1], 'ab', strict=True)))"
    told = ask(**program(both))
    assert told["printed"] == "[(1, 'a'), (2, 'b')]\n"
    assert told["exception"].startswith("ValueError: the arguments of zip")


def test_the_clock_follows_alpha_and_beta(ask):
    source = "launch(lambda: dist.all_reduce(torch.ones(1000)), world_size=4)"
    assert " in 66 µs" in ask(**program(source, 1e-5, 1e-9))["text"]
    assert " in 12 µs" in ask(**program(source, 1e-6, 1e-9))["text"]
