"""Compares the results of a unit natively and managed, and tells differences from flakes."""

import pathlib
import re

EXIT = "(exit status)"
ABSENT = "absent"
# Differing tests of one unit that are run again, each alone.
MAX_AGAIN = 8

KNOWN = pathlib.Path(__file__).with_name("known.tsv")


def with_exit(results, ran):
    """Results, and that of the run, which says something if no test does."""
    end = "timed out" if ran.timed_out else f"status {ran.status}"
    return {**results, EXIT: end}


def differing(native, managed):
    """Tests whose results differ. The exit status counts if nothing else does."""
    tests = [test for test in sorted({*native, *managed})
             if native.get(test, ABSENT) != managed.get(test, ABSENT)]
    return [test for test in tests if test != EXIT] or tests


def known_reasons():
    """Rows of suite, unit, test (a regular expression) and reason."""
    rows = []
    for line in KNOWN.read_text().splitlines():
        if line and not line.startswith("#"):
            suite, unit, test, reason = line.split("\t")
            rows.append((suite, unit, re.compile(test), reason))
    return rows


def known_reason(rows, suite, unit, test):
    for known_suite, known_unit, pattern, reason in rows:
        if (known_suite, known_unit) == (suite, unit) and pattern.fullmatch(test):
            return reason
    return None


def verdict(native, managed):
    """By all results of a test, the first of each list being that of the whole unit."""
    if len(set(native)) > 1:
        return "flakes natively"
    if set(managed[1:]) <= set(native):
        return "not repeated"
    if len(set(managed)) > 1:
        return "flakes managed"
    return "differs"
