"""Redis's Tcl tests with the servers that are installed: a unit is a file of tests."""

import os

from foreign.suite import Missing, Suite, by_lines, debian_source, find, must

SHORT = "unit/type/hash unit/type/incr".split()
# Tests of modules, which would have to be built, of clusters of servers, and of minutes of load.
LEFT_OUT = ("unit/moduleapi", "unit/cluster", "integration/", "helpers/", "unit/tls", "unit/violations")


class Redis(Suite):
    name = "redis"
    summary = "Redis's Tcl tests (tests/test_helper.tcl), servers and client"
    packages = ("redis-server", "redis-tools", "tcl")
    short = SHORT
    deadline = 900

    def prepare(self):
        server = find("redis-server", "redis-server")
        self.version = must([server, "--version"]).split(" sha=")[0]
        self.tclsh = find("tclsh", "tcl")
        self.source = debian_source("redis", self.work)
        for name in ("server", "cli", "benchmark", "check-aof", "check-rdb"):
            link = self.source / "src" / f"redis-{name}"
            if not link.exists():
                os.symlink(find(f"redis-{name}", "redis-tools redis-server"), link)
        tests = self.source / "tests"
        if not tests.is_dir():
            raise Missing(f"{self.source} has no tests")
        files = sorted(path.relative_to(tests).with_suffix("") for path in tests.rglob("*.tcl"))
        listed = (tests / "test_helper.tcl").read_text()
        self.units = [name for name in map(str, files)
                      if not name.startswith(LEFT_OUT) and f"    {name}\n" in listed]

    def command(self, unit, scratch, only=None):
        wanted = ["--only", only] if only else []
        return [self.tclsh, "tests/test_helper.tcl", "--clients", "1", "--single", unit,
                *wanted], self.source

    def environment(self):
        # No colours in its lines.
        return {"TERM": "dumb"}

    def results(self, unit, scratch, ran):
        return by_lines(ran.output, r"^\[testing\]: (?P<test>unit/\S+)",
                        r"^\[(?P<result>ok|err|skip|ignore|exception)\]: (?P<test>.*?)"
                        r"(?: \(\d+ ms\))?(?: in tests/\S+)?$")
