"""SQLite's Tcl tests: its source, built with its test interface; a unit is a test file."""

import os
import shutil

from foreign.suite import Suite, by_lines, debian_source, find, jobs, must

UNITS = """
select1 select2 select5 insert index join where where2 trans savepoint rollback malloc3 mmap1 mmap2
mmap3 cache pcache pcache2 memdb memsubsys1 pagesize pragma tempdb vacuum wal wal2 wal3 walthread
thread001 thread002 thread003 shared fts3aa fts3ab rtree1 json101 bigrow big_index blob func func2
like sort sort2 sort4 trigger1 trigger2 view window1 with1 zeroblob backup backup2 busy lock lock2
io alter attach autovac incrblob incrvacuum corrupt corrupt2 fuzz fuzz2 hexlit date expr types
""".split()

SHORT = "select1 mmap1".split()


class Sqlite(Suite):
    name = "sqlite"
    summary = "SQLite's Tcl tests (testfixture)"
    packages = ("tcl", "tcl-dev", "gcc", "make", "dpkg-dev")
    short = SHORT
    deadline = 900

    def prepare(self):
        find("tclsh", "tcl")
        find("gcc", "gcc")
        self.source = debian_source("sqlite3", self.work)
        self.version = "SQLite " + (self.source / "VERSION").read_text().strip()
        self.program = self.source / "testfixture"
        if not self.program.exists():
            must(["./configure", "--with-tcl=/usr/lib/tcl8.6"], cwd=self.source)
            must(["make", "-j", jobs(), "testfixture"], cwd=self.source)
        tests = self.source / "test"
        self.units = [name for name in UNITS if (tests / f"{name}.test").exists()]

    def command(self, unit, scratch, only=None):
        # Its databases lie in the working directory.
        directory = scratch / "databases"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        return [self.program, self.source / "test" / f"{unit}.test", "--verbose=1"], directory

    def environment(self):
        return {"TCLLIBPATH": os.environ.get("TCLLIBPATH", "")}

    def results(self, unit, scratch, ran):
        return by_lines(ran.output, r"^(?P<test>[\w.-]+?)\.\.\.(?: |$)",
                        r"^!? ?(?P<test>[\w.-]+?)(?:\.\.\.)? (?P<result>Ok|Omitted|expected)\b")
