#!/usr/bin/env python
"""Add up what the test stages reported: `tools/totals.py REPORTS SECONDS [FAILED_STAGE]`.

REPORTS is a folder of JUnit files. A stage that failed without a failing test (a linter, the build, a
collection error) counts as one failure. Prints pytest's summary line, then `N passed, M failed` by itself.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def totals(reports):
    """How many tests passed, failed and were skipped, over all JUnit files in the folder."""
    counts = Counter()
    for report in sorted(Path(reports).glob("*.xml")):
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            failed = int(suite.get("failures")) + int(suite.get("errors"))
            skipped = int(suite.get("skipped"))
            counts.update(failed=failed, skipped=skipped, passed=int(suite.get("tests")) - failed - skipped)
    return counts


def summary(counts, seconds, failed_stage=None):
    """The two closing lines."""
    failed = counts["failed"] or (1 if failed_stage else 0)
    shown = [f"{failed} failed"] if failed else []
    shown += [f"{counts['passed']} passed"]
    shown += [f"{counts['skipped']} skipped"] if counts["skipped"] else []
    return f"{', '.join(shown)} in {seconds:.2f}s\n{counts['passed']} passed, {failed} failed"


def main():
    reports, seconds, *failed_stage = sys.argv[1:]
    print(summary(totals(reports), float(seconds), *failed_stage))


if __name__ == "__main__":
    main()
