"""`python3 -m test`, which also notes in a file what became of each test at once: a crash loses none.

    python3 cpython_lines.py FILE REGRTEST-ARGUMENT...
"""

import os
import sys
import unittest

FILE = sys.argv[1]
PID = os.getpid()
WORDS = {"startTest": "died", "addSuccess": "ok", "addFailure": "failed", "addError": "failed",
         "addSkip": "skipped", "addExpectedFailure": "ok", "addUnexpectedSuccess": "failed"}


def note(test, word):
    # Not kept open: some tests look at all descriptors.
    if os.getpid() == PID:
        with open(FILE, "a") as file:
            file.write(f"{word}\t{test.id()}\n")


def noted(name, word):
    original = getattr(unittest.TestResult, name)

    def method(self, test, *rest):
        note(test, word)
        return original(self, test, *rest)

    setattr(unittest.TestResult, name, method)


def noted_subtests():
    original = unittest.TestResult.addSubTest

    def method(self, test, subtest, err):
        if err is not None:
            note(test, "failed")
        return original(self, test, subtest, err)

    unittest.TestResult.addSubTest = method


if __name__ == "__main__":
    for pair in WORDS.items():
        noted(*pair)
    noted_subtests()
    # As `python3 -m test` has it, not the directory of this file.
    sys.path[0] = os.getcwd()
    sys.argv = ["test", *sys.argv[2:]]
    from test.libregrtest.main import main
    main()
