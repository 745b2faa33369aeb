"""The tests of Go's standard library, for the Go that is installed."""

import os
import pathlib
import re

from foreign.suite import Missing, Suite, by_lines, find, must

PACKAGES = """
runtime runtime/debug runtime/pprof os os/exec os/signal os/user net net/http/httptest net/textproto
net/rpc sync sync/atomic syscall bufio bytes strings sort io io/fs errors context time math/big
encoding/json encoding/gob encoding/binary compress/gzip compress/flate archive/tar archive/zip
crypto/sha256 crypto/tls hash/crc32 reflect regexp strconv unicode/utf8 text/template container/heap
database/sql debug/elf go/parser html/template image/png log path/filepath
""".split()

SHORT = "sync bufio os/signal".split()
# Packages whose tests a managed `go test` builds and runs.
TOGETHER = "errors sync bufio container/heap".split()

BEGAN = r"^=== (?:RUN|CONT)\s+(?P<test>\S+)"
ENDED = r"^\s*--- (?P<result>PASS|FAIL|SKIP): (?P<test>\S+) \("


class Go(Suite):
    """Each package's test program, which is static unless the package needs cgo."""

    name = "go"
    summary = "Go's standard library: each package's test program"
    how = "loader"
    packages = ("golang-go",)
    short = SHORT
    deadline = 900

    def prepare(self):
        self.go = "/usr/local/go/bin/go"
        if not os.path.exists(self.go):
            self.go = find("go", "golang-go")
        self.version = must([self.go, "version"]).split()[2]
        self.root = pathlib.Path(must([self.go, "env", "GOROOT"]).strip())
        if not list((self.root / "src/sync").glob("*_test.go")):
            raise Missing(f"{self.root} has no tests")
        self.work.mkdir(parents=True, exist_ok=True)
        self.units = [name for name in PACKAGES if (self.root / "src" / name).is_dir()]

    def environment(self):
        return {"GOCACHE": str(self.work / "cache"), "GOFLAGS": "", "GOTOOLCHAIN": "local",
                "GOPROXY": "off", "PATH": f"{self.root}/bin:{os.environ['PATH']}",
                # Static, as Go programs that are shipped are.
                "CGO_ENABLED": "0"}

    def command(self, unit, scratch, only=None):
        source = self.root / "src" / unit
        program = self.work / (unit.replace("/", "_") + ".test")
        if not program.exists():
            must([self.go, "test", "-c", "-o", program, unit], cwd=source,
                 env={**os.environ, **self.environment()})
        wanted = [f"-test.run={pattern(only)}"] if only else []
        return [program, "-test.v", "-test.short", f"-test.timeout={self.deadline}s",
                *wanted], source

    def results(self, unit, scratch, ran):
        # Some name their subtests after addresses.
        output = re.sub(r"0x[0-9a-f]{6,}", "0x", ran.output)
        return by_lines(output, BEGAN, ENDED)


class GoTest(Go):
    """The go command with its compiler and linker, and the tests that it starts."""

    name = "go-test"
    summary = "`go test` itself: compiler, linker and tests below a managed go command"
    how = "loader, below it exec"
    short = ("go test",)

    def prepare(self):
        super().prepare()
        self.units = ["go test"]

    def command(self, unit, scratch, only=None):
        return [self.go, "test", "-count=1", "-short", "-v", *TOGETHER], self.root / "src"


def pattern(test):
    """What -test.run takes for one test or subtest."""
    return "/".join(f"^{re.escape(part)}$" for part in test.split("/"))
