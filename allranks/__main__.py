"""The book's command line: `hang` and `trace` for your own jobs, `grade` and `submit` for labs."""

import argparse
import secrets
import sys
from pathlib import Path

from allranks import hang, merging


def main(arguments=None):
    """Do what the command line says; return the exit status.

    0; 1 if a notebook could not be graded, or if dumps show what is wrong; 2 if there is nothing to read, or
    no place to write to.
    """
    parser = argparse.ArgumentParser(prog="python -m allranks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    grade = commands.add_parser("grade", help="grade labs that were handed in, as JSON and CSV")
    grade.add_argument("notebooks", nargs="+", metavar="NOTEBOOK", help="a notebook or a folder of notebooks")
    grade.add_argument("--out", type=Path, default=Path("marks"), help="the folder to write to (marks)")
    grade.add_argument("--workers", type=_positive(int), default=None, help="labs at a time (cores + 1)")
    grade.add_argument("--seed", type=int, help="of inputs and weights, to repeat a grading (in marks.json)")
    nbgrader = commands.add_parser("nbgrader", help="export solved labs as nbgrader assignments")
    otter = commands.add_parser("otter", help="export the tests of solved labs for an Otter grader")
    for export in (nbgrader, otter):
        export.add_argument("notebooks", nargs="+", type=Path, metavar="SOLVED", help="a solved lab")
        export.add_argument("--out", type=Path, default=Path(), help="the course's folder (.)")
    submit = commands.add_parser("submit", help="grade a lab, and write the file to hand in")
    submit.add_argument("notebook", type=Path, metavar="NOTEBOOK")
    stuck = commands.add_parser("hang", help="say which rank is to blame, from flight recorder dumps")
    stuck.add_argument("dumps", nargs="*", default=[hang.FOLDER], metavar="FILE", help="or folder (hang)")
    stuck.add_argument("--last", type=_positive(int), default=8, help="collectives shown for each rank (8)")
    for command in (grade, submit):
        command.add_argument("--timeout", type=_positive(float), default=60, help="seconds for a task (60)")
    trace = commands.add_parser("trace", help="say which rank the others wait for, from profiler traces")
    trace.add_argument("files", nargs="+", metavar="FILE", help="a trace of a rank, or a folder of traces")
    trace.add_argument("--out", type=Path, metavar="FILE", help="write one trace of all ranks, for Perfetto")
    options = parser.parse_args(arguments)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # an encoding without ✓ costs nobody the result
    commands = {"grade": _grade, "submit": _submit, "hang": _hang, "trace": _trace}
    return commands.get(options.command, _export)(options)


def _trace(options):
    try:
        traces = merging.traces_of(options.files, options.out)
        print(*merging.report(traces), sep="\n")
        if options.out:
            merging.merge(traces, options.out)
            print(f"Open {options.out} at https://ui.perfetto.dev; it stays on your machine.")
    except ValueError as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0


def _grade(options):
    from allranks.grading import report, supervisor

    missing = [path for path in options.notebooks if not Path(path).exists()]
    if missing:
        print(f"Not found: {', '.join(missing)}. Give notebooks, or folders of notebooks.", file=sys.stderr)
        return 2
    sandboxed = supervisor.has_sandbox()
    if not sandboxed:
        print(
            "bubblewrap does not work here: submissions can read files and use the network.", file=sys.stderr
        )
    try:
        report.writable(options.out)
    except OSError as error:
        return _unwritable("--out", options.out, "name a folder", error)
    workers = options.workers or report.cores() + 1
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    records = report.grade(options.notebooks, options.out, workers, options.timeout, sandboxed, seed)
    failed = sum(record["status"] != "graded" for record in records)
    print(f"{len(records) - failed} graded, {failed} not: {options.out / 'marks.csv'} and marks.json")
    return 1 if failed or not records else 0


def _export(options):
    from allranks.grading import nbgrader, otter, reading

    export = {"nbgrader": nbgrader, "otter": otter}[options.command].export
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _unwritable("--out", options.out, "name a folder", error)
    for path in options.notebooks:
        try:
            print(export(path, options.out))
        except (OSError, ValueError, reading.NotGradable) as refusal:
            print(f"{path}: {refusal}", file=sys.stderr)
            return 2
    return 0


def _submit(options):
    from allranks.grading import reading, report, supervisor

    record = report.graded(
        options.notebook, options.timeout, supervisor.has_sandbox(), secrets.randbelow(10**9)
    )
    for task in record["tasks"]:
        print("✓" if task["points"] else "✗", f"{task['task']}: {task['reason']}")
    print(*record["notes"], report.line(record), sep="\n")
    if record["status"] != "graded":
        return 1
    path = options.notebook.with_name(f"{options.notebook.stem}_to_hand_in.ipynb")
    try:
        path.write_bytes(reading.without_outputs(options.notebook))
    except OSError as error:
        return _unwritable("The file to hand in", path, "copy the lab to another folder", error)
    print(f"Hand in {path}")
    return 0


def _unwritable(what, path, instead, error):
    why = f"{error.filename or path}: {error.strerror or error}"
    print(f"{what} {path} cannot be written ({why}): {instead}.", file=sys.stderr)
    return 2


def _hang(options):
    try:
        dumps = hang.read(options.dumps, refusals := [])
    except hang.NoDump as error:
        print(error, file=sys.stderr)
        return 2
    if refusals:
        print(*refusals, sep="\n", file=sys.stderr)
    found = hang.findings(dumps)
    print(*(found or [hang.nothing_found(dumps)]), sep="\n")
    parts = {"Where ranks stand": hang.standing(dumps), "Entered": hang.table(dumps, options.last)}
    for heading, lines in parts.items():
        if lines:
            print(f"\n{heading}:", *lines, sep="\n")
    return 1 if found else 0


def _positive(kind):
    def number(text):
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a positive number")
        return value

    return number


if __name__ == "__main__":
    sys.exit(main())
