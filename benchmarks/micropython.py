"""How fast does the arithmetic run in a page? Start, import and simulations in MicroPython under Node.

python benchmarks/micropython.py [--times 7]
"""

import argparse
import json
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNNER, PACKAGE = ROOT / "tests" / "micropython" / "run.mjs", ROOT / "allranks"
FILES = [
    "inputs.py",
    "simulate.py",
    *sorted(f"schedules/{each.name}" for each in PACKAGE.glob("schedules/*.py")),
]
IMPORT = "from allranks import schedules, simulate"
SIZES = [(8, 32), (16, 64)]
# column -> what is timed, with p and m
STEPS = {
    "schedule": "made = schedules.one_f_one_b({p}, {m})",
    "check": "schedules.check(made)",
    "simulate": "timeline = simulate.simulate(made)",
    "slots": "timeline.slots",
    "peak": "timeline.peak_activations",
}


class Page:
    """A MicroPython of its own, as a page starts one."""

    def __init__(self, heap):
        command = ["node", RUNNER, PACKAGE, str(heap), *FILES]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started = self.read()["started"]
        self.imported = self.run(IMPORT)

    def read(self):
        """The next answer."""
        return json.loads(self.process.stdout.readline())

    def run(self, statements):
        """Milliseconds that statements take."""
        print(json.dumps({"statements": statements}), file=self.process.stdin, flush=True)
        answer = self.read()
        if "error" in answer:
            raise RuntimeError(answer["message"])
        return answer["milliseconds"]

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def measure(heap, times):
    """The milliseconds of everything, in a fresh MicroPython for each time: (column, p, m) -> a list."""
    measured = {}
    for _ in range(times):
        page = Page(heap)
        measured.setdefault("start", []).append(page.started)
        measured.setdefault("import", []).append(page.imported)
        for p, m in SIZES:
            for column, statements in STEPS.items():
                taken = page.run(statements.format(p=p, m=m))
                measured.setdefault((column, p, m), []).append(taken)
        page.close()
    return measured


def main():
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7, help="how many interpreters a row is the median of")
    times = parser.parse_args().times
    print(f"| heap | start | import | p, m | {' | '.join(STEPS)} |")
    print("|---" * (4 + len(STEPS)) + "|")
    for heap in (16, 64, 128):
        middle = {what: statistics.median(taken) for what, taken in measure(heap, times).items()}
        for p, m in SIZES:
            cells = [f"{middle['start']:.0f}", f"{middle['import']:.0f}", f"{p}, {m}"]
            cells += [f"{middle[column, p, m]:.1f}" for column in STEPS]
            print(f"| {heap} MiB | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
