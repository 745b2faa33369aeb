"""What every suite tells of itself."""

import os
import re
import shutil
import subprocess

# A test that began and of which no result came.
DIED = "died"


class Missing(Exception):
    """A suite cannot be run here; the text says why."""


class Failed(Exception):
    """A suite that should have been there could not be made ready."""


class Suite:
    """A suite is a row of units (a file, a package), each a command that runs many tests."""

    name = ""
    summary = ""
    # Which way the engine comes in.
    how = "preload"
    # Debian's packages that it needs.
    packages = ()
    # Units of --short.
    short = ()
    # Seconds that a unit may take natively.
    deadline = 600

    def __init__(self, work):
        # Downloads and builds, which stay.
        self.work = work / self.name

    def prepare(self):
        """Raises Missing if it cannot be run here. Afterwards `version` and `units` are known."""
        raise NotImplementedError

    def command(self, unit, scratch, only=None):
        """The command of a unit or of one test of it, and its working directory."""
        raise NotImplementedError

    def results(self, unit, scratch, ran):
        """Test names and results."""
        raise NotImplementedError

    def seconds(self, ran):
        """Time a run took, or a piece of work in it."""
        return ran.wall

    def environment(self):
        """Variables beside those of all suites."""
        return {}


def find(name, package):
    """The distribution's own program rather than a version switcher's script."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") or shutil.which(name)
    if not found:
        raise Missing(f"no {name} here (apt-get install {package})")
    return found


def must(command, **options):
    """Runs a command that makes a suite ready."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n"
                     f"{done.stdout[-2000:]}")
    return done.stdout


def by_lines(output, began, ended):
    """Results from lines; `began` has a test's name, `ended` a name and a result."""
    results = {}
    for line in output.splitlines():
        if match := re.search(began, line):
            results.setdefault(match["test"], DIED)
        if match := re.search(ended, line):
            results[match["test"]] = match["result"].lower()
    return results


def debian_source(package, into):
    """Unpacks a package's source below `into`, with lists of its own: the machine's stay as they
    are. Returns the unpacked directory."""
    done = [path for path in into.glob(f"{package}-*") if path.is_dir()]
    if done:
        return done[0]
    find("dpkg-source", "dpkg-dev")
    into.mkdir(parents=True, exist_ok=True)
    lists, sources = into / "lists", into / "sources.list"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    release = re.search(r"VERSION_CODENAME=(\w+)", open("/etc/os-release").read())
    if not release:
        raise Missing("its source is Debian's, which this is not")
    sources.write_text(f"deb-src http://deb.debian.org/debian {release[1]} main\n")
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::SourceList={sources}", "-o",
           "Dir::Etc::SourceParts=/dev/null", "-o", f"Dir::State::Lists={lists}", "-o",
           "APT::Sandbox::User=root", "-o", "Dir::Cache::srcpkgcache=", "-o",
           "Dir::Cache::pkgcache="]
    try:
        must([*apt, "update"], cwd=into)
        must([*apt, "source", package], cwd=into)
    except Failed as failed:
        raise Missing(f"its source could not be fetched: {failed}") from failed
    return next(path for path in into.glob(f"{package}-*") if path.is_dir())


def jobs():
    return str(os.cpu_count() or 1)
