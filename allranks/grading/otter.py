"""How does a lab become an Otter autograder? One test file a task, which calls the task's check.

Otter runs a submission and its tests in one kernel, with the submission's own `check`: it is for courses
that use Otter or Gradescope already, and `allranks grade` is safer.
"""

from allranks.grading import reading, runner

TEST = """\
from otter.test_files import test_case

OK_FORMAT = False
name = "task_{number}"
points = 1


@test_case(points=1, name={title!r})
def passes_its_check(env):
    from allranks import check

    answers = [env.get(name) for name in {names}]
    said = check.verdict(check.{lab}.{task}.__wrapped__, *answers)
    assert said.startswith("✓"), said
"""


def export(path, folder):
    """Write the tests of the lab at `path` to `folder`/<lab>/tests; return that folder."""
    submission = reading.read(path)
    tests = folder / path.stem.removesuffix("_solved") / "tests"
    tests.mkdir(parents=True, exist_ok=True)
    for number, (title, check, names) in enumerate(runner.tasks_of(submission), 1):
        source = TEST.format(
            number=number, title=title, names=names, lab=submission["lab"], task=check.__name__
        )
        (tests / f"task_{number}.py").write_text(source, encoding="utf-8")
    return tests
