#!/usr/bin/env python
"""Add up what the test stages reported: `tools/totals.py REPORTS SECONDS [FAILED_STAGE]`.

REPORTS is a folder of JUnit files. A stage that failed without a failing test (a linter, the build, a
collection error) counts as one failure. Prints the ten slowest tests, why others were skipped, pytest's
summary line, then `N passed, M failed` by itself.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from heapq import nlargest
from pathlib import Path


def suites(reports):
    """The test suites of all JUnit files in the folder."""
    for report in sorted(Path(reports).glob("*.xml")):
        yield from ElementTree.parse(report).getroot().iter("testsuite")


def totals(reports):
    """How many tests passed, failed and were skipped."""
    counts = Counter()
    for suite in suites(reports):
        failed = int(suite.get("failures")) + int(suite.get("errors"))
        skipped = int(suite.get("skipped"))
        counts.update(failed=failed, skipped=skipped, passed=int(suite.get("tests")) - failed - skipped)
    return counts


def slowest(reports, count=10):
    """A line for each of the slowest tests: seconds, file, test."""
    tests = [test for suite in suites(reports) for test in suite.iter("testcase")]
    chosen = nlargest(count, tests, key=lambda test: float(test.get("time", 0)))
    return [f"{float(t.get('time', 0)):6.1f} s  {t.get('classname')}::{t.get('name')}" for t in chosen]


def skipped(reports):
    """A line for each reason for which tests were skipped: how many, why."""
    found = (reason.get("message") for suite in suites(reports) for reason in suite.iter("skipped"))
    return [f"{count:6,d} skipped: {reason}" for reason, count in Counter(found).most_common()]


def summary(counts, seconds, failed_stage=None):
    """The two closing lines."""
    failed = counts["failed"] or (1 if failed_stage else 0)
    shown = [f"{failed} failed"] if failed else []
    shown += [f"{counts['passed']} passed"]
    shown += [f"{counts['skipped']} skipped"] if counts["skipped"] else []
    return f"{', '.join(shown)} in {seconds:.2f}s\n{counts['passed']} passed, {failed} failed"


def main():
    reports, seconds, *failed_stage = sys.argv[1:]
    print(*slowest(reports), *skipped(reports), sep="\n")
    print(summary(totals(reports), float(seconds), *failed_stage))


if __name__ == "__main__":
    main()
