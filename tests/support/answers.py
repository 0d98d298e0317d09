"""Answers to the tasks of a lab, right and wrong: `tests/check/answers/<lab>/<task>.yaml`.

They were written from the lab's page, before anybody looked at its checks. A wrong answer is a source, or the
first right one after replacements. `says` has a part of the line for those whose hint is tested, every day;
the others run where a check or an answer has changed, and every night. It maps names to parts, or parts to
lists of names.
"""

import linecache
import sys
from pathlib import Path

import cloudpickle
import solved
import yaml
from together import verdicts

cloudpickle.register_pickle_by_value(sys.modules[__name__])
ANSWERS = Path(__file__).resolve().parents[1] / "check" / "answers"


def tasks(lab):
    """The names of the tasks that have a file."""
    return sorted(file.stem for file in (ANSWERS / lab).glob("*.yaml"))


def read(lab, task):
    """What the file of a task says."""
    return yaml.safe_load((ANSWERS / lab / f"{task}.yaml").read_text(encoding="utf-8"))


def of_task(lab, task, slug, names, apart=False):
    """Yield (name, functions, expected part of the line, whether the ranks fail) of every answer to a task.

    The right ones come first. `names` are those of the task's functions; an answer sees the names that the
    solved notebook `slug` defines. On a rank, what answers define is in one `__main__`, where functions that
    call each other would meet those of another answer in the same world; `apart` gives each a module.
    """
    study = read(lab, task)
    known, fails = solved.answers(slug), study.get("fails", ())
    says = {}
    for one, other in study.get("says", {}).items():
        says |= dict.fromkeys(other, one) if isinstance(other, list) else {one: other}
    first = next(iter(study["right"].values()))
    for name, source in study["right"].items():
        yield name, defined(source, f"<{task}, {name}>", known, names, apart), "✓", False
    for name, answer in study["wrong"].items():
        source = answer if isinstance(answer, str) else edited(first, answer, f"{task}, {name}")
        functions = defined(source, f"<{task}, {name}>", known, names, apart)
        yield name, functions, says.get(name, "✗"), name in fails


def edited(source, edits, what):
    """`source` after the replacements; one that finds nothing is an error."""
    for old, new in edits:
        assert old in source, f"{what}: {old!r} is not in the first right answer"
        source = source.replace(old, new)
    return source


def defined(source, file, known, names, apart):
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    namespace = known | ({"__name__": file} if apart else {})
    exec(compile(source, file, "exec"), namespace)
    return [namespace[name] for name in names]


def daily(answers):
    """The right ones and those whose hint is tested."""
    return [answer for answer in answers if answer[2] != "✗"]


def nightly(answers):
    """The others."""
    return [answer for answer in answers if answer[2] == "✗"]


def judge(check, given, beside=()):
    """Assert the verdicts on the answers `given`, all in as few worlds as the check has."""
    given = list(given)
    lines = verdicts([(check, [*functions, *beside], fails) for _, functions, _, fails in given])
    wrong = [
        f"{name}: {part!r} is not in: {line}"
        for (name, _, part, _), line in zip(given, lines, strict=True)
        if part not in line or (part == "✓") != line.startswith("✓")
    ]
    assert not wrong, "\n".join(wrong)
